#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/step_stats.h"
#include "gradwire/train/servers/served_module.h"

namespace gradwire {

/// Asynchronous local steps (Liu et al., arXiv:2401.09135): a worker takes H optimizer steps of its
/// own, pushes the difference between the outer parameters, which servers have, and its own, and
/// goes on from the outer parameters, which the servers' outer optimizer has stepped meanwhile
/// (DelayedNesterov). Nobody waits for a slow worker. In mode sync it is LocalSgd (DiLoCo) with
/// servers in place of all-reduces, and with `use` below 1 a step takes the first differences.
///
///     gradwire::ServedLocalSteps local(parameters, {.process_group = group,
///                                                   .servers = {.mode = "async"}}, {.steps = 16});
///     loss.backward();
///     optimizer.step();    // any optimizer; its state stays local to the worker
///     local.step();        // after every H-th step: push, pull, and go on from there
///
/// On a server rank the constructor serves and ends the process, as that of Served.
///
/// Errors: throws Exception. Not thread-safe.
class ServedLocalSteps {
 public:
  /// `parameters`: all that the inner optimizer changes. They get worker 0's values. `options`:
  /// without an optimizer, which is made for `steps`: outer_learning_rate and outer_momentum; the
  /// momentum changes at every W-th difference of W workers, or in mode sync at each step. Throws
  /// Exception(invalid_argument) as Served, for a max_grad_norm, and for fragments, overlap_steps
  /// and mixing, which servers do not have. The codec of the differences is that of `steps`, not
  /// ServedOptions::codec. Collective.
  ServedLocalSteps(std::vector<NamedTensor> parameters, ServedOptions options,
                   const step::LocalStepsConfig& steps);
  ~ServedLocalSteps();

  /// Call after each step of the inner optimizer.
  void step();
  /// Sets the share of H that this worker takes before it pushes, at least one step; at first 1. A
  /// slower worker with a smaller share pushes differences that are no older than those of others.
  void set_share(double share) { share_ = share; }
  /// Pushes the difference since the last push, if this worker has taken a step since.
  void flush();
  /// Goes on from the outer parameters that this worker has, unless it has taken a step since the
  /// last push: call it after ServedModule::pull() and take().
  void follow();
  /// flush(), and then gives all workers the same parameters, as Served::synchronize().
  void synchronize();
  /// Swaps the own parameters with the outer ones that this worker has: for an evaluation, before
  /// and after it.
  void swap();

  step::StepStats stats() const { return served_->stats(); }
  /// For batches and reports of the servers.
  ServedModule& served() { return *served_; }

 private:
  class Outer;

  step::LocalStepsConfig steps_;
  std::vector<torch::Tensor> own_;
  std::shared_ptr<Outer> outer_;
  std::unique_ptr<ServedModule> served_;
  std::int64_t since_push_ = 0;  ///< Steps.
  double share_ = 1;
};

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/defaults.h"
#include "gradwire/gradient/local_steps.h"
#include "gradwire/gradient/streaming_schedule.h"
#include "gradwire/report/trace.h"
#include "gradwire/train/bucket_layout.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"
#include "gradwire/train/outer_optimizer.h"
#include "gradwire/train/reducer_stats.h"

namespace gradwire {

struct LocalSgdOptions {
  LocalStepsConfig steps;
  std::uint64_t seed = 1;  ///< Of codecs that draw; the same on all ranks.
  /// Smaller tensors travel as they are.
  std::size_t codec_min_elements = kCodecMinElements;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Gets what travels when; must outlive it.
};

/// Training in which every rank takes steps of its own and only now and then all of them agree: 1/H
/// of the bytes. Instead of averaging gradients at each step,
///
///     gradwire::LocalSgd local(all_parameters, group, {.steps = {.steps = 16}});
///     loss.backward();     // without DataParallel, or inside its no_sync()
///     optimizer.step();    // any optimiser; its state stays this rank's own
///     local.step();        // after every H-th step: average and go on from there
///     ...
///     local.synchronise(); // at the end: all ranks have the same parameters
///
/// The ranks' parameters start equal (rank 0's). After H steps each sends how far it has come from
/// the common ("outer") parameters, optionally through a codec; the mean is the gradient of the
/// OuterOptimizer, which steps the outer parameters, alike on all ranks to the last bit; and the
/// ranks go on from those. With fragments, parts of the model do so in turn (StreamingSchedule).
/// With overlap_steps, averages travel in the background while ranks take their next steps, and are
/// then mixed with what the rank has come to meanwhile: own = mixing * own + (1 - mixing) * outer
/// (Douillard et al., arXiv:2501.18512, equation 3).
///
/// With one step, a rate of 1, no momentum and plain SGD inside, it is synchronous SGD, but for
/// rounding: the mean is taken of parameters instead of gradients.
///
/// Every rank makes the same calls. Buffers (batch norm's statistics) stay each rank's own. Errors:
/// Exception, on all ranks; the group is then dead. Not thread-safe.
class LocalSgd {
 public:
  /// `parameters`: all that the inner optimiser changes. Collective. Throws
  /// Exception(invalid_argument) for settings that do not go together or an unknown codec,
  /// (mismatch) if ranks have different parameters, (unsupported) for a codec on a group of others.
  LocalSgd(std::vector<NamedTensor> parameters, ProcessGroup group, const LocalSgdOptions& options);

  /// The inner optimiser has taken a step. Communicates when the schedule says so.
  void step();

  /// Averages all that has changed since, and gives all ranks the outer parameters. Collective.
  void synchronise();

  /// Steps taken so far.
  std::int64_t steps() const { return steps_; }

  /// One line for people: how differences travel, and why.
  std::string describe() const { return averager_->describe(); }

  /// What communication has cost. `bytes` is what travels before encoding.
  const ReducerStats& stats() const { return stats_; }

  /// What a checkpoint of this rank must hold beside its parameters, to go on with the same bits:
  /// "PARAMETER.outer", ".outer_velocity", ".outer_difference", the position, and the codec's.
  /// Waits for what is under way. Copies.
  std::vector<NamedTensor> state();

  /// Takes over what state() gave. Throws Exception(invalid_argument) that names what is missing or
  /// has another shape or type.
  void load_state(const std::map<std::string, torch::Tensor>& saved);

 private:
  /// Parameters that travel together, and in the same order, flat, what belongs to them.
  struct Bundle {
    std::vector<NamedTensor> parameters;
    Bucket outer;
    std::optional<Bucket> velocity;  ///< With momentum.
    Bucket difference;
  };
  struct Fragment {
    std::vector<std::size_t> bundles;
    std::int64_t begun_after = 0;  ///< The step after which it was last averaged.
  };
  struct Flight {
    std::size_t fragment = 0;
    bool arrived = false;
  };

  ArgumentName name() const;
  std::vector<BucketShape> lay_out(const LocalSgdOptions& options);
  void add_bundle(Bucket difference, std::vector<NamedTensor> parameters, std::size_t fragment);
  void begin(std::size_t fragment);
  void wait_for(const std::vector<std::size_t>& fragments);
  void step_outer(std::size_t fragment);
  void take_over(std::size_t fragment, double mixing);
  void land();
  void visit_state(const std::function<void(const std::string&, torch::Tensor)>& visit);
  torch::Tensor position() const;
  void set_position(const torch::Tensor& position);

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::shared_ptr<const Clock> clock_;
  StreamingSchedule schedule_;
  OuterOptimizer optimizer_;
  double mixing_;
  double scale_ = 1;  ///< Of differences, before they are averaged: 1 / P where that only adds up.
  std::vector<Bundle> bundles_;
  std::vector<Fragment> fragments_;
  std::unique_ptr<Averager> averager_;  ///< Of the differences.
  std::optional<Flight> flight_;
  std::int64_t steps_ = 0;
  ReducerStats stats_;
};

}  // namespace gradwire

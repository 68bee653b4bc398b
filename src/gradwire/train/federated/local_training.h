#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/federated/federation_plan.h"
#include "gradwire/train/zero/flat_unit.h"

namespace gradwire {

/// One client's part in a round.
struct LocalWork {
  std::int64_t round = 0;
  std::int64_t client = 0;
  std::int64_t samples = 0;  ///< The client's own.
  /// Partial work: no more steps than this.
  std::int64_t max_steps = std::numeric_limits<std::int64_t>::max();
  /// Returns false to stop before the next step, such as when the device is needed. Null: never.
  std::function<bool()> goes_on;
};

struct LocalResult {
  std::int64_t steps = 0;
  std::int64_t samples = 0;  ///< In all steps; a sample counts once an epoch.
  double mean_loss = 0;      ///< Over these samples, before each step; without the proximal term.
};

/// Returns the number of steps of all epochs with `samples` samples.
std::int64_t steps_of(const LocalPlan& plan, std::int64_t samples);

/// A client's training in a round of federated learning, on a module that serves one client after
/// another: a simulator has one for each thread, and not for each client. The module's parameters
/// become views of one flat tensor, so that to load the global model and to take the difference are
/// one operation each. Buffers of the module are its own. Not thread-safe.
///
/// An epoch's samples are in an order drawn by the plan's seed, the round, the client and the
/// epoch, so results do not depend on which thread trains a client. (Not so for modules that draw
/// random numbers themselves, such as dropout: libtorch has one generator for all threads.)
///
/// A small model is bound by the overhead of libtorch's operations. With one thread for each client
/// in training, make them use no further threads: at::set_num_threads(1) on each.
class LocalTraining {
 public:
  /// The mean loss of a batch, with a graph; or without one, if the gradients are in grad(). The
  /// samples are numbers from 0 to samples - 1.
  using Loss = std::function<torch::Tensor(std::span<const std::int64_t> samples)>;

  /// `module` must outlive this. Throws Exception(invalid_argument) for a plan out of range, and
  /// for parameters that are not dense, of one type and on one device.
  LocalTraining(torch::nn::Module& module, LocalPlan plan);

  /// Copies the global model: all trainable parameters, in the order of flat().
  void load(const torch::Tensor& global);

  /// Trains from the current parameters, which are the global ones. Throws
  /// Exception(invalid_argument) for less than one sample, and what `loss` throws.
  LocalResult run(const LocalWork& work, const Loss& loss);

  /// The parameters as one tensor, in order of registration. Of the same memory.
  const torch::Tensor& flat() const { return unit_.flat(); }

  const LocalPlan& plan() const { return plan_; }
  /// For all clients from now on, such as the mu of another round.
  void set_proximal(double mu) { plan_.proximal = mu; }

 private:
  void keep_global();
  void differentiate(const torch::Tensor& loss);

  LocalPlan plan_;
  std::vector<NamedTensor> named_;
  FlatUnit unit_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor global_;                     ///< Flat; only with a proximal term.
  std::vector<torch::Tensor> global_views_;  ///< For each parameter.
};

}  // namespace gradwire

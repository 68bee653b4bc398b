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
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/local_step_engine.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/data_parallel/bucket.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Optimizer of the outer parameters. The outer gradient D is the averaged difference between the
/// outer parameters and those the ranks reached. It uses stochastic gradient descent with Nesterov
/// momentum (Douillard et al., DiLoCo, arXiv:2311.08105, algorithm 1), as in PyTorch's SGD:
///
///     v = momentum * v + D         outer = outer - rate * (D + momentum * v)
///
/// With a rate of 1 and no momentum, `outer` becomes the mean of the ranks' parameters: local SGD
/// (Stich, ICLR 2019).
struct OuterOptimizer {
  double learning_rate = 1;
  double momentum = 0;

  bool has_velocity() const { return momentum > 0; }

  /// Steps `outer`. `velocity` has the same shape and starts at zero; it is unused without
  /// momentum. `difference` is overwritten.
  void step(torch::Tensor outer, torch::Tensor velocity, torch::Tensor difference) const;
};

struct LocalSgdOptions {
  step::LocalStepsConfig steps;
  std::uint64_t seed = 1;  ///< Seed of randomized codecs; the same on all ranks.
  /// Tensors with fewer elements are sent uncompressed.
  std::size_t codec_min_elements = step::kCodecMinElements;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< For stats().
  TraceRecorder* trace = nullptr;  ///< Records the traffic; must outlive this.
};

/// Local SGD: ranks take H optimizer steps independently, then average their parameters. That sends
/// 1/H of the bytes of averaging gradients at each step.
///
///     gradwire::LocalSgd local(all_parameters, group, {.steps = {.steps = 16}});
///     loss.backward();     // without DataParallel, or inside its no_sync()
///     optimizer.step();    // any optimizer; its state stays local to the rank
///     local.step();        // after every H-th step: average and continue from there
///     ...
///     local.synchronize(); // at the end: all ranks have the same parameters
///
/// All ranks start with rank 0's parameters. After H steps each rank sends the difference between
/// its parameters and the shared ("outer") parameters, optionally through a codec. The mean
/// difference is the gradient of the OuterOptimizer, which steps the outer parameters, bitwise the
/// same on all ranks. The ranks continue from the outer parameters. With fragments, parts of the
/// model are averaged in turn (StreamingSchedule). With overlap_steps, averaging runs in the
/// background while ranks take their next steps. The result is then mixed with the rank's current
/// parameters: own = mixing * own + (1 - mixing) * outer (Douillard et al., arXiv:2501.18512,
/// equation 3).
///
/// With H = 1, an outer rate of 1, no momentum and plain SGD as the inner optimizer, it equals
/// synchronous SGD up to rounding: the mean is taken of parameters instead of gradients.
///
/// Every rank must make the same calls. Buffers (batch norm's statistics) stay local to the rank.
/// Errors: throws Exception on all ranks; the group is unusable afterwards. Not thread-safe.
class LocalSgd : private step::StepHost {
 public:
  /// `parameters`: all parameters that the inner optimizer changes. Collective. Throws Exception:
  /// invalid_argument for inconsistent settings or an unknown codec, mismatch if ranks have
  /// different parameters, unsupported for a codec on a group of another backend.
  LocalSgd(std::vector<NamedTensor> parameters, ProcessGroup group, const LocalSgdOptions& options);

  /// Called after each step of the inner optimizer. Communicates when the schedule says so.
  void step();

  /// Averages all parameters that changed since their last averaging, and copies the outer
  /// parameters to all ranks. Collective.
  void synchronize();

  /// Number of steps taken.
  std::int64_t steps() const { return engine_->position().steps; }

  /// One line of text for logs: how differences are encoded, and why.
  std::string describe() const { return exchange_->describe(); }

  /// Accumulated cost of communication. `bytes` counts bytes before encoding.
  const step::StepStats& stats() const { return engine_->stats(); }

  /// The state that a checkpoint of this rank must hold in addition to its parameters, to continue
  /// with the same bits. Contains "PARAMETER.outer", ".outer_velocity", ".outer_difference", the
  /// position, and the codec's state. Waits for operations in flight. Returns copies.
  std::vector<NamedTensor> state();

  /// Restores the result of state(). Throws Exception(invalid_argument) that names a tensor which
  /// is missing or has another shape or type.
  void load_state(const std::map<std::string, torch::Tensor>& saved);

 private:
  /// Parameters that are averaged as one unit, and their flat state in the same order.
  struct Bundle {
    std::vector<NamedTensor> parameters;
    Bucket outer;
    std::optional<Bucket> velocity;  ///< With momentum.
    Bucket difference;
  };

  ArgumentName name() const;
  std::vector<exchange::UnitShape> lay_out(const LocalSgdOptions& options);
  void add_bundle(Bucket difference, std::vector<NamedTensor> parameters);
  void make_exchange(const std::vector<exchange::UnitShape>& shapes,
                     const LocalSgdOptions& options);

  Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t) override {}
  bool step(std::size_t unit) override;
  Parameters parameters(std::size_t) override { return {}; }
  void apply_outer(const Bundle& bundle, double mixing);

  void visit_state(const std::function<void(const std::string&, torch::Tensor)>& visit);
  torch::Tensor position() const;
  void set_position(const torch::Tensor& position);

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::shared_ptr<const Clock> clock_;
  OuterOptimizer optimizer_;
  double mixing_;
  /// Factor on differences before the reduction: 1 / P if the exchange can only sum.
  double scale_ = 1;
  std::vector<Bundle> bundles_;
  std::vector<std::size_t> fragment_of_;          ///< By bundle.
  std::unique_ptr<exchange::Exchange> exchange_;  ///< Exchange of the differences.
  std::unique_ptr<step::LocalStepEngine> engine_;
};

}  // namespace gradwire

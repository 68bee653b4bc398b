#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/host/group.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/step_stats.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

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
class LocalSgd {
 public:
  /// `parameters`: all parameters that the inner optimizer changes. Collective. Throws Exception:
  /// invalid_argument for inconsistent settings or an unknown codec, mismatch if ranks have
  /// different parameters, unsupported for a codec on a group of another backend.
  LocalSgd(std::vector<NamedTensor> parameters, ProcessGroup group, const LocalSgdOptions& options);
  ~LocalSgd();

  /// Called after each step of the inner optimizer. Communicates when the schedule says so.
  void step();

  /// Averages all parameters that changed since their last averaging, and copies the outer
  /// parameters to all ranks. Collective.
  void synchronize();

  /// Number of steps taken.
  std::int64_t steps() const;

  /// One line of text for logs: how differences are encoded, and why.
  std::string describe() const;

  /// Accumulated cost of communication. `bytes` counts bytes before encoding.
  const step::StepStats& stats() const;

  /// The state that a checkpoint of this rank must hold in addition to its parameters, to continue
  /// with the same bits. Contains "PARAMETER.outer", ".outer_velocity", ".outer_difference", the
  /// position, and the codec's state. Waits for operations in flight. Returns copies.
  std::vector<NamedTensor> state();

  /// Restores the result of state(). Throws Exception(invalid_argument) that names a tensor which
  /// is missing or has another shape or type.
  void load_state(const std::map<std::string, torch::Tensor>& saved);

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace gradwire

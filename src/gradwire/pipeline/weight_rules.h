#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/pipeline_schedule.h"

/// Versions of a stage's weights, counted in updates: version v is what v updates have made. The
/// gradient of an update belongs to one micro-batch, or to all of a step.
namespace gradwire::pipeline {

/// Which weights the computations of an asynchronous pipeline use, and how its updates are made.
enum class WeightMethod : std::uint8_t {
  flush,               ///< Synchronous: one version.
  stash,               ///< PipeDream: the newest, and the same ones again in the backward.
  two_bw,              ///< PipeDream-2BW: those before the last update.
  spectrain,           ///< Predicted in forward and backward (train/pipeline/weight_prediction.h).
  lwp_v,               ///< Predicted in the forward, from the momentum.
  lwp_w,               ///< Predicted in the forward, from the last update.
  spike_compensation,  ///< The newest; updates make up for late gradients.
  newest,              ///< The newest.
};

std::string_view name_of(WeightMethod method);

/// Finds a method by its name ("spectrain"). Fails with invalid_argument that names the nearest.
Result<WeightMethod> weight_method(std::string_view name);

/// Returns true if a backward uses the weights of its forward, so that it may compute parts of it
/// again.
inline bool keeps_weights(WeightMethod method) {
  return method == WeightMethod::flush || method == WeightMethod::stash ||
         method == WeightMethod::two_bw;
}

/// Returns the method that a name of `gradwire schedule pipeline` and `weights` select; empty:
/// stash, 2bw or flush, as the schedule is. Fails with invalid_argument if they do not go together.
Result<WeightMethod> weight_method_for(std::string_view schedule, std::string_view weights);

/// Returns what the schedule must declare.
WeightRule rule_of(WeightMethod method);

/// Returns true if the task is the last of its micro-batch in its stage: it completes the
/// gradients.
bool completes_gradients(const Task& task);

/// Returns true if each micro-batch has an update of its own.
inline bool updates_each_micro_batch(WeightRule rule) {
  return rule != WeightRule::flush && rule != WeightRule::double_buffer;
}

/// Returns the rank's tasks after which a stage is updated, by place in the rank's order: those
/// that complete the gradients of a micro-batch, or of a step.
std::vector<bool> tasks_before_updates(const PipelineSchedule& schedule, Rank rank);

/// Returns, by stage, the staleness and the copies of the weights that the order leads to under the
/// schedule's rule, over any number of steps:
///
///   - flush, stash, predict, newest: a forward uses the newest version
///   - double_buffer: the micro-batches of step k use version k - 1, and version 0 in step 0
///   - flush, stash, double_buffer: a version is kept until the last backward of a micro-batch
///     whose forward used it
///   - predict: there is one predicted copy beside the newest version
///
/// A version exists from its update to its last use; double_buffer also keeps the one before the
/// newest. Fails with invalid_argument that names the task if micro-batches of a stage differ in
/// their staleness, or use a version that does not exist yet. Requires a schedule that trains and
/// has every computation once.
Result<std::vector<WeightBounds>> weights_of(const PipelineSchedule& schedule);

}  // namespace gradwire::pipeline

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/pipeline_schedule.h"

/// Versions of a stage's weights, counted in updates: version v is what v updates have made. The
/// gradient of an update belongs to one micro-batch, or to all of a step.
namespace gradwire::pipeline {

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

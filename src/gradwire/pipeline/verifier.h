#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/pipeline/pipeline_schedule.h"

namespace gradwire::pipeline {

/// The possible faults of a schedule, in the order in which they are looked for.
enum class Fault : std::uint8_t {
  malformed,    ///< A stage, micro-batch or rank out of range; a task on a rank without its stage.
  incomplete,   ///< Not exactly one forward and one backward (or I and W) of each micro-batch.
  too_early,    ///< A rank's task comes before one of the same rank that it needs.
  wrong_order,  ///< A stage's weight gradients are not added in the order of the micro-batches.
  deadlock,     ///< Ranks wait for each other, with the given sends in flight and receives ahead.
  too_much,     ///< A rank keeps the activations of more micro-batches than declared.
  wrong_weights,  ///< A stage's weights are staler, or kept in more copies, than declared.
};

std::string_view name_of(Fault fault);

struct Violation {
  Fault fault = Fault::malformed;
  std::string message;  ///< Names rank, task and cause.
};

/// Proves a schedule correct for any number of steps and any times of computations and transfers:
/// each computation happens exactly once, after all that it needs; ranks never wait for each other;
/// a stage adds its weight gradients in the order of the micro-batches, which gives the bits of one
/// process that accumulates them; activations stay within the declared memory; weights have the
/// declared staleness and number of copies (weight_rules.h). Returns the first fault; nullopt:
/// none.
///
/// A few steps stand for any number. A task never has a smaller delay than the tasks it depends on,
/// so no step depends on a later one. A deadlock therefore occurs within one step: a step with all
/// delayed tasks, or a step in which the pipeline fills or drains.
std::optional<Violation> find_fault(const PipelineSchedule& schedule);

}  // namespace gradwire::pipeline

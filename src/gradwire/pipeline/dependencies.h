#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/pipeline/pipeline_schedule.h"

namespace gradwire::pipeline {

/// A computation, the transfer of an activation or of its gradient, or a barrier.
struct Node {
  enum class Kind { task, transfer, barrier };
  Kind kind = Kind::task;
  int step = 0;       ///< Step that the data belongs to.
  Task task;          ///< The computation; of a transfer, the one that produces its data.
  Stage to = -1;      ///< Stage that uses the data of a transfer.
  Rank rank = 0;      ///< Where it is computed, or from where it is sent.
  Rank to_rank = -1;  ///< Rank that receives a transfer.
  std::vector<std::size_t> next;  ///< Nodes that wait for this one.
  int waits_for = 0;              ///< Number of nodes that this one waits for.
};

/// Everything that `steps` consecutive steps of a schedule do, and the order that its rules demand:
///
///   - a rank computes one task at a time, in its order
///   - a transfer follows the task that produces its data, and precedes the task that uses it
///   - with sends_in_flight S, a producer follows the transfer of the S-th output before its own;
///     with S = 0 the rank's next task follows the transfer
///   - with receives_ahead R, a transfer begins when the user of the R-th input before its own is
///     the next task of its rank: no byte is buffered elsewhere
///
/// Delayed tasks of the last steps follow the others. The verifier looks for cycles in it, and the
/// simulation runs it. Requires that each computation occurs exactly once, on the rank of its
/// stage.
std::vector<Node> dependencies_of(const PipelineSchedule& schedule, int steps);

/// Runs the nodes in an order that the dependencies allow. Returns those that can never run,
/// because they wait for each other; none for a correct schedule.
std::vector<std::size_t> blocked_nodes(const std::vector<Node>& nodes);

}  // namespace gradwire::pipeline

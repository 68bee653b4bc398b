#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

/// Pipeline parallelism as data: a schedule of a training step's computations is a value that is
/// verified, simulated and drawn.
namespace gradwire::pipeline {

using Stage = int;  ///< Position along the model, from 0. A rank may have several.
using MicroBatch = int;

/// A computation of one micro-batch in one stage, as in PyTorch's pipelining runtime.
enum class Compute : std::uint8_t {
  forward,          ///< F
  backward,         ///< B: gradients of the inputs and of the weights.
  backward_input,   ///< I: gradients of the inputs.
  backward_weight,  ///< W: gradients of the weights; some time after I.
};

struct Task {
  Compute compute = Compute::forward;
  Stage stage = 0;
  MicroBatch micro_batch = 0;
  /// In step k of its rank, the task belongs to step k - delay. A pipeline with delays does not
  /// drain between steps.
  int delay = 0;
  bool operator==(const Task&) const = default;
};

/// "2F0": the forward of micro-batch 0 in stage 2, in PyTorch's notation; "2B0-1": the backward of
/// the step before.
std::string name_of(const Task& task);

/// Activations flow from one stage to a later one, and their gradients back.
struct Edge {
  Stage from = 0;
  Stage to = 0;
};

/// The data that one computation sends to another: an activation, to a later stage, or the gradient
/// of one, back to the stage that produced it.
struct Message {
  Stage from = 0;
  Stage to = 0;
  MicroBatch micro_batch = 0;

  bool is_gradient() const { return to < from; }
  auto operator<=>(const Message&) const = default;
};

inline constexpr int kUnlimited = std::numeric_limits<int>::max();
inline constexpr int kMaxMicroBatches = 1 << 16;  ///< Maximum for one step.

/// When a stage's weights are updated, and which weights a micro-batch uses (weight_rules.h).
enum class WeightRule : std::uint8_t {
  flush,          ///< One update a step, when the gradients of all its micro-batches are complete.
  stash,          ///< An update a micro-batch; its backward uses the weights of its forward.
  double_buffer,  ///< One update a step, from gradients at the weights of one update before.
  predict,        ///< An update a micro-batch; weights are predicted for the update it will meet.
  newest,         ///< An update a micro-batch; forward and backward use the newest weights.
};

std::string_view name_of(WeightRule rule);

/// The bounds that a schedule declares for the weights of a stage.
struct WeightBounds {
  /// Updates between the weights of a micro-batch's forward and those that its gradient changes,
  /// as long as the pipeline does not drain.
  int staleness = 0;
  int kept = 1;  ///< Copies of the weights that exist at once, the newest included.
  bool operator==(const WeightBounds&) const = default;
};

/// One training step of a pipeline. Steps follow each other without a barrier, unless `barrier`: a
/// rank begins the next step when its own work on this one is done.
struct PipelineSchedule {
  std::string name;
  int micro_batches = 1;
  std::vector<Rank> rank_of;             ///< By stage.
  std::vector<Edge> edges;               ///< A chain, and one more for each skip connection.
  std::vector<std::vector<Task>> order;  ///< By rank: computations, one after the other.
  bool trains = true;                    ///< False: forward only.
  WeightRule weights = WeightRule::flush;
  std::vector<WeightBounds> weight_bounds;  ///< By stage; empty: no staleness, one copy.
  bool barrier = false;  ///< A step begins when all ranks have ended the last one.
  /// Outputs of one edge and direction that may wait for the network; 0: a send blocks its rank.
  int sends_in_flight = kUnlimited;
  /// Inputs of one edge and direction that may arrive before the one whose task comes next; 0: a
  /// receive is posted when its task comes next.
  int receives_ahead = kUnlimited;
  /// Maximum number of micro-batches, over a rank's stages, whose activations the rank keeps;
  /// 0: undeclared.
  int kept = 0;

  int stages() const { return static_cast<int>(rank_of.size()); }
  int ranks() const { return static_cast<int>(order.size()); }
};

/// Edges of a model without skip connections.
std::vector<Edge> chain_of(int stages);

/// Return what a computation receives from, or sends to, other stages, those of the same rank
/// included.
std::vector<Message> inputs_of(const PipelineSchedule& schedule, const Task& task);
std::vector<Message> outputs_of(const PipelineSchedule& schedule, const Task& task);

/// Returns only the forwards of a training schedule, on the same stages: for evaluation. Sends and
/// receives are limited to two, because no gradient comes back that would hold up a stage.
PipelineSchedule forwards_of(PipelineSchedule schedule);

/// Returns how many steps a task is delayed at most.
int max_delay(const PipelineSchedule& schedule);

/// Returns, by rank, the maximum number of micro-batches whose activations the rank keeps, over any
/// number of steps: from their forward to their backward or backward_weight. Requires tasks in
/// range.
std::vector<int> kept_by_rank(const PipelineSchedule& schedule);

/// Writes the order as PyTorch's CSV: a line per rank, "0F0,0F1,0B0,0B1". Tasks of earlier steps
/// ("0B0-1") are an addition of gradwire.
std::string to_csv(const PipelineSchedule& schedule);

/// The same for PyTorch. Fails with invalid_argument for a schedule with tasks of earlier steps,
/// which PyTorch does not know.
Result<std::string> to_torch_csv(const PipelineSchedule& schedule);

/// Reads PyTorch's CSV. Empty cells, which stand for idle time, are skipped. Fails with
/// invalid_argument that names line and cell, a line without computations, or the stage that no
/// rank has. The result is not verified.
Result<PipelineSchedule> from_csv(std::string_view text, const std::string& name);

}  // namespace gradwire::pipeline

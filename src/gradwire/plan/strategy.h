#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/gradient/local_steps.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/plan/device.h"

namespace gradwire {

/// What the optimiser keeps, besides parameters and gradients.
enum class Optimiser : std::uint8_t { sgd, momentum, adam };

std::string_view name_of(Optimiser optimiser);

/// How a model is trained on so many devices. The degrees multiply: nodes * devices_per_node =
/// data() * tensor * pipeline.
struct Strategy {
  int nodes = 1;
  int devices_per_node = 1;
  double batch = 32;  ///< Samples that a replica of the model takes in one pass.
  ComputeType compute = ComputeType::fp32;
  Optimiser optimiser = Optimiser::adam;

  Overlap overlap = Overlap::backward;
  std::string codec = "none";  ///< As in codec/catalogue.h.
  int accumulate = 1;          ///< Passes before gradients are averaged.
  int zero_stage = 0;          ///< 0 (data parallel), 1, 2 or 3.
  /// Steps between two averages of the parameters; 1: gradients are averaged in every step.
  int local_steps = 1;
  int fragments = 1, overlap_steps = 0;  ///< Of local steps: LocalStepsConfig's.
  /// All-reduce: "auto" takes the fastest of collective_time.h's; or one of them.
  std::string algorithm = "auto";
  /// Nodes besides `nodes` that hold the parameters, in place of an all-reduce; 0: none.
  int servers = 0;

  int tensor = 1;    ///< Devices that share every layer (Megatron), in one node as far as may be.
  int pipeline = 1;  ///< Stages.
  int micro_batches = 1;   ///< A pass is cut into, for pipelines.
  bool recompute = false;  ///< Activations are computed again in backward (checkpointing).

  int devices() const { return nodes * devices_per_node; }
  int data() const { return devices() / (tensor * pipeline); }  ///< Replicas of the model.
  /// Samples of one step of the optimiser, over all replicas.
  double global_batch() const { return batch * accumulate * data(); }

  /// As `gradwire train` has them. Not checked.
  LocalStepsConfig local() const {
    return {.steps = local_steps,
            .fragments = fragments,
            .overlap_steps = overlap_steps,
            .codec = local_steps > 1 ? codec : "none"};
  }

  bool operator==(const Strategy&) const = default;
};

/// Throws Exception(invalid_argument), which says what the limits are: zero nodes, degrees that do
/// not multiply to the number of devices, an unknown codec or algorithm (with the nearest right
/// name), what cannot go together, of local steps what the trainer refuses (check_local_steps()).
void check_strategy(const Strategy& strategy);

}  // namespace gradwire

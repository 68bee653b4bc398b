#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/plan/device.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/overlap.h"

namespace gradwire::plan {

inline constexpr int kMaxNodes = 1 << 20;

/// State that the optimizer keeps, besides parameters and gradients.
enum class OptimizerKind : std::uint8_t { sgd, momentum, adam };

std::string_view name_of(OptimizerKind optimizer);

/// How a model is trained. The degrees multiply: nodes * devices_per_node = data() * tensor *
/// pipeline.
struct Strategy {
  int nodes = 1;
  int devices_per_node = 1;
  double batch = 32;  ///< Samples per pass of a replica.
  ComputeType compute = ComputeType::fp32;
  OptimizerKind optimizer = OptimizerKind::adam;

  step::Overlap overlap = step::Overlap::backward;
  std::string codec = "none";  ///< Codec as in codec/catalogue.h.
  int accumulate = 1;          ///< Passes before gradients are averaged.
  int zero_stage = 0;          ///< 0 (data parallel), 1, 2 or 3.
  /// Steps between two averages of the parameters; 1: gradients are averaged in every step.
  int local_steps = 1;
  int fragments = 1, overlap_steps = 0;  ///< Parameters of local steps: see LocalStepsConfig.
  /// All-reduce algorithm: one of planned_algorithms(); "auto": the fastest.
  std::string algorithm = "auto";
  /// Nodes besides `nodes` that are parameter servers, in place of an all-reduce; 0: none.
  int servers = 0;
  bool beside_workers = false;  ///< The servers are on the first of `nodes`, not besides them.

  int tensor = 1;         ///< Devices that share every layer (Megatron), within a node if possible.
  int pipeline = 1;       ///< Number of stages.
  int micro_batches = 1;  ///< Per pass, for pipelines.
  /// The schedule of the pipeline, as in pipeline/catalogue.h; the default of gradwire::Pipeline.
  std::string schedule = "1f1b";
  bool recompute = false;  ///< Recompute activations in backward (checkpointing).

  /// Nodes with those that only serve.
  int machines() const { return nodes + (beside_workers ? 0 : servers); }
  int devices() const { return nodes * devices_per_node; }
  int data() const { return devices() / (tensor * pipeline); }  ///< Replicas of the model.
  /// Samples per optimizer step, over all replicas.
  double global_batch() const { return batch * accumulate * data(); }

  /// Returns the local steps as in `gradwire train`. Not checked.
  step::LocalStepsConfig local() const {
    return {.steps = local_steps,
            .fragments = fragments,
            .overlap_steps = overlap_steps,
            .codec = local_steps > 1 ? codec : "none"};
  }

  bool operator==(const Strategy&) const = default;
};

/// Throws Exception(invalid_argument), which states the limits: zero nodes, degrees that do not
/// multiply to the number of devices, an unknown codec or algorithm (with the nearest valid name),
/// invalid combinations, local steps that the trainer refuses (check_local_steps()).
void check_strategy(const Strategy& strategy);

/// Encoded size of fp32 values, in bytes per value.
struct WireBytes {
  double contribution = 4;  ///< Sent to the rank that reduces.
  double mean = 4;          ///< Sent back.
  bool feedback = false;    ///< Keeps an error-feedback residual, four bytes per value.
  bool coded = false;       ///< An all-to-all and an all-gather in place of an all-reduce.
};

/// Returns the sizes of a codec of codec/catalogue.h, for long tensors and `ranks` ranks. Throws
/// Exception(invalid_argument): an unknown codec; power_sgd and auto, whose sizes depend on more.
WireBytes wire_bytes(const std::string& codec, int ranks);

}  // namespace gradwire::plan

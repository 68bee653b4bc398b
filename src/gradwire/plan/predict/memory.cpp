#include "gradwire/plan/predict/memory.h"

#include <algorithm>

#include "gradwire/step/bucket_plan.h"

namespace gradwire::plan {
namespace {

/// Elements kept for backward by a pass of one sample. With recomputation: the outputs between
/// layers, and all of the layer that is being recomputed.
double kept_elements(const ModelShape& model, bool recompute) {
  if (!recompute) return model.kept();
  double between = 0, largest = 0;
  for (const ModelLayer& layer : model.layers) {
    between += layer.outputs;
    largest = std::max(largest, layer.kept);
  }
  return std::min(between + largest, model.kept());
}

/// The activations of the kept micro-batches, for a rank's share of the layers.
double activations(const ModelShape& model, const Strategy& s, double kept) {
  return kept_elements(model, s.recompute) * s.batch * bytes_of(s.compute) * kept /
         s.micro_batches / (s.tensor * s.pipeline);
}

double buffers(const ModelShape& model, const Strategy& s, double parameters) {
  const BytesPerParameter bytes = bytes_per_parameter(s.compute, s.optimizer);
  if (s.data() < 2) return 0;
  double total = 0;
  if (wire_bytes(s.codec, s.data()).feedback) total += 4 * parameters;
  if (s.zero_stage >= 2)
    total += 2 * std::min<double>(step::kBucketBytes, bytes.gradient * parameters);
  if (s.zero_stage == 3) {
    std::int64_t largest = 0;
    for (const ModelLayer& layer : model.layers) largest = std::max(largest, layer.parameters);
    // The layer that computes, and the one that is prefetched.
    total += 2 * bytes.parameter * static_cast<double>(largest) / s.tensor;
  }
  return total;
}

/// Returns a device's share of state that its ranks may divide.
double divided(bool by_ranks, int ranks) {
  return by_ranks ? 1.0 / ranks : 1.0;
}

/// fp32 sums over accumulated passes, which train/zero keeps for any gradient type. Stage 1 has
/// them for all gradients; the others for a rank's part, or in the gradients themselves.
double sums_of_passes(double parameters, const BytesPerParameter& bytes, const Strategy& s) {
  const bool apart = s.zero_stage == 1 && s.accumulate > 1 && bytes.gradient < 4;
  return apart ? 4 * parameters : 0;
}

}  // namespace

BytesPerParameter bytes_per_parameter(ComputeType compute, OptimizerKind optimizer) {
  const double states = optimizer == OptimizerKind::adam       ? 8
                        : optimizer == OptimizerKind::momentum ? 4
                                                               : 0;
  if (compute != ComputeType::mixed) return {4, 4, states};
  return {2, 2, 4 + states};
}

double zero_states(double parameters, const BytesPerParameter& bytes, int stage, int ranks) {
  return parameters * (bytes.parameter * divided(stage >= 3, ranks) +
                       bytes.gradient * divided(stage >= 2, ranks) +
                       bytes.optimizer * divided(stage >= 1, ranks));
}

MemoryUse memory_use(const ModelShape& model, const Strategy& s, double kept) {
  const BytesPerParameter bytes = bytes_per_parameter(s.compute, s.optimizer);
  const double parameters = static_cast<double>(model.parameters()) / (s.tensor * s.pipeline);
  return {.parameters = zero_states(parameters, {bytes.parameter, 0, 0}, s.zero_stage, s.data()),
          .gradients = zero_states(parameters, {0, bytes.gradient, 0}, s.zero_stage, s.data()) +
                       sums_of_passes(parameters, bytes, s),
          .optimizer = zero_states(parameters, {0, 0, bytes.optimizer}, s.zero_stage, s.data()),
          .activations = activations(model, s, kept),
          .buffers = buffers(model, s, parameters),
          .activations_known = model.kept() > 0};
}

}  // namespace gradwire::plan

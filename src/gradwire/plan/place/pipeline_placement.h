#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace gradwire::plan {

/// A layer, for one mini-batch on one device.
struct PipelineLayer {
  double seconds = 0;       ///< Forward and backward.
  double output_bytes = 0;  ///< To the next layer; gradients of the same size return.
  double weight_bytes = 0;
  double kept_bytes = 0;  ///< Activations that backward needs.
};

struct PipelineProblem {
  std::vector<PipelineLayer> layers;
  int devices = 1;
  double bytes_per_second = 0;  ///< Between any two devices, each direction.
  double memory_bytes = 0;      ///< Memory of each device; 0: unlimited.
  /// Bytes of gradients and optimizer states per byte of weights.
  double states_per_weight = 3;
  /// Every mini-batch in flight has its own weights (PipeDream's weight stashing); otherwise all
  /// share one version.
  bool stash_weights = false;
  bool replicate = true;  ///< A stage may be on several devices, which share its mini-batches.
  bool use_all = false;   ///< Leave no device idle, even if that would be as fast.
};

struct PipelineStage {
  std::size_t begin = 0, end = 0;  ///< Layers begin .. end - 1.
  int replicas = 1;
  double seconds = 0;       ///< Per mini-batch; its replicas take turns.
  double memory_bytes = 0;  ///< Memory used on each of its devices.
};

struct PipelinePlacement {
  std::vector<PipelineStage> stages;
  /// Seconds between two mini-batches in a full pipeline: of the slowest stage or the slowest
  /// transfer between stages.
  double bottleneck = 0;
};

/// Returns the stage of layers begin .. end - 1 on `replicas` devices. `from_here`: devices on this
/// stage and all later ones. Replicas take turns and average their gradients by a ring:
///
///     T(i -> j, m) = max(sum T_l, 2 (m - 1) sum |w_l| / B) / m
///
/// (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019,
/// section 3.1). Each device has ceil(from_here / replicas) mini-batches in flight (section 3.2).
/// It keeps their activations, and with stashing their weights.
PipelineStage pipeline_stage(const PipelineProblem& problem, std::size_t begin, std::size_t end,
                             int replicas, int from_here);

/// Returns the stages with the fastest bottleneck, as few as possible, on at most `devices` devices
/// (an optimum may leave some idle). Dynamic programming as in PipeDream, section 3.1:
///
///     A(j -> n, m) = min over i, m' of max(T(j -> i, m'), 2 a_i / B, A(i + 1 -> n, m - m'))
///
/// but from the last layer to the first, so that the mini-batches in flight of each stage are
/// known, and with them its memory. Returns nullopt if no placement fits. Takes layers^2 *
/// devices^2 / 4 steps.
std::optional<PipelinePlacement> place_pipeline(const PipelineProblem& problem);

/// Returns the seconds of `micro_batches` micro-batches that begin and end with an empty pipeline
/// (GPipe, 1F1B). The first passes all stages; each further one follows `bottleneck` after the one
/// before. Micro-batches are the mini-batches of the problem. `problem` must be the one that was
/// placed, as it has the transfers between stages.
double pipeline_seconds(const PipelineProblem& problem, const PipelinePlacement& placement,
                        int micro_batches);

}  // namespace gradwire::plan

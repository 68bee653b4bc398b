#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace gradwire {

/// A layer, for one mini-batch on one device.
struct PipelineLayer {
  double seconds = 0;       ///< Forward and backward.
  double output_bytes = 0;  ///< To the next layer; as many gradients come back.
  double weight_bytes = 0;
  double kept_bytes = 0;  ///< Activations that backward needs.
};

struct PipelineProblem {
  std::vector<PipelineLayer> layers;
  int devices = 1;
  double bytes_per_second = 0;  ///< Between any two devices, each direction.
  double memory_bytes = 0;      ///< Of each device; 0: not a limit.
  /// Bytes of gradients and of the optimiser's states for each byte of weights.
  double states_per_weight = 3;
  /// Every mini-batch in flight has weights of its own (PipeDream's weight stashing); otherwise
  /// one version serves all.
  bool stash_weights = false;
  bool replicate = true;  ///< Stages may be on several devices, which share the mini-batches.
};

struct PipelineStage {
  std::size_t begin = 0, end = 0;  ///< Layers begin .. end - 1.
  int replicas = 1;
  double seconds = 0;       ///< For each mini-batch, its replicas taking turns.
  double memory_bytes = 0;  ///< Of each of its devices.
};

struct PipelinePlacement {
  std::vector<PipelineStage> stages;
  /// Seconds between two mini-batches once the pipeline is full: of the slowest stage, or of the
  /// slowest transfer between two.
  double bottleneck = 0;
};

/// A stage of the layers begin .. end - 1 on `replicas` devices, where `from_here` devices are on
/// its stages and all later ones. Its replicas take turns and average their gradients by a ring:
/// max(sum of T_l, 2 (m - 1) / m * |w| / B * m) / m, that is
///
///     T(i -> j, m) = max(sum T_l, 2 (m - 1) sum |w_l| / B) / m
///
/// (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019,
/// section 3.1). In flight, for each device, are ceil(from_here / replicas) mini-batches (section
/// 3.2), whose activations, and with stashing weights, it keeps.
PipelineStage pipeline_stage(const PipelineProblem& problem, std::size_t begin, std::size_t end,
                             int replicas, int from_here);

/// The stages whose slowest part is the fastest, as few of them as can be, on at most `devices`
/// devices (an optimum may leave some idle). Dynamic programming as in PipeDream, section 3.1:
///
///     A(j -> n, m) = min over i, m' of max(T(j -> i, m'), 2 a_i / B, A(i + 1 -> n, m - m'))
///
/// but from the last layer to the first, so that it is known how many mini-batches each stage has
/// in flight, and with them whether it fits into memory. Nothing: no placement fits. Takes
/// layers^2 * devices^2 / 4 steps.
std::optional<PipelinePlacement> place_pipeline(const PipelineProblem& problem);

/// Seconds of `micro_batches` micro-batches that begin and end with an empty pipeline (GPipe,
/// 1F1B): the first passes all stages, and each other one comes `bottleneck` after the one before.
/// Micro-batches are the mini-batches of the problem. For transfers between stages, `problem` is
/// the one that was placed.
double pipeline_seconds(const PipelineProblem& problem, const PipelinePlacement& placement,
                        int micro_batches);

}  // namespace gradwire

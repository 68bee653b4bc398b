#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/plan/place/pipeline_placement.h"

namespace gradwire::plan {

/// A host with one device, which may get one stage of a pipeline.
struct PlacementHost {
  std::string name;
  double speed = 1;         ///< A layer takes its seconds / speed.
  double memory_bytes = 0;  ///< 0: unlimited.
};

/// Layers to be divided among unequal hosts.
struct HostProblem {
  std::vector<PipelineLayer> layers;  ///< Costs of one micro-batch; seconds on a host of speed 1.
  std::vector<PlacementHost> hosts;
  /// From host i to host j: [i * hosts + j], above 0. The diagonal is not used.
  std::vector<double> bytes_per_second;
  int stages = 2;  ///< On as many different hosts.
  int micro_batches = 1;
  /// Bytes of gradients and optimizer states per byte of weights.
  double states_per_weight = 3;
  /// By stage: micro-batches whose activations it keeps, as its schedule says.
  std::vector<int> kept;
};

struct HostPlacement {
  std::vector<int> hosts;        ///< By stage: the number of its host.
  std::vector<std::size_t> cut;  ///< By stage: its number of layers.
  double first = 0;       ///< Seconds in which one micro-batch passes all stages, there and back.
  double bottleneck = 0;  ///< Seconds between two micro-batches in a full pipeline.
  double seconds = 0;     ///< first + (micro_batches - 1) * bottleneck.
};

/// Hosts up to which place_on_hosts() is exact.
inline constexpr std::size_t kExactHosts = 8;

/// Returns the host of each stage and the layers of each stage that take the least time
///
///     T = sum of T_s + 2 sum of c_s + (m - 1) max(T_s, k c_s)
///
/// with T_s the forward and backward of stage s on its host, and c_s the transfer of an activation
/// between stages s and s + 1 over the slower direction of the link between their hosts. k = 2,
/// because a port carries activations one way and gradients the other way; 1 for two stages, whose
/// ports have one of both. Stages fit into the memory of their hosts: weights, gradients, optimizer
/// states, and the activations of `kept` micro-batches. Returns nullopt if none fits.
///
/// Exact up to kExactHosts hosts: dynamic programming over the sets of used hosts, the last host
/// and its last layer, for the least sum below a limit of the maximum; the limit falls until no
/// placement below it can be faster. With more hosts, the best cut of an order is exact, and the
/// order is improved by exchanging two hosts, or reversing a part, for as long as that helps.
/// Deterministic. Requires 1 <= stages <= hosts, and `kept` of each stage.
std::optional<HostPlacement> place_on_hosts(const HostProblem& problem);

/// Returns the best cut for stages on `hosts`, in this order; nullopt if none fits.
std::optional<HostPlacement> cut_for(const HostProblem& problem, const std::vector<int>& hosts);

/// Returns the times of a given placement, however much memory it takes.
HostPlacement placement_of(const HostProblem& problem, std::vector<int> hosts,
                           std::vector<std::size_t> cut);

/// Returns the bytes that stage `stage` of layers begin .. end - 1 takes.
double stage_bytes(const HostProblem& problem, int stage, std::size_t begin, std::size_t end);

}  // namespace gradwire::plan

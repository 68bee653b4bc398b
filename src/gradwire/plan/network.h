#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/schedule/cost/constants.h"
#include "gradwire/topology/topology.h"

namespace gradwire::plan {

/// Network between nodes: the same network cards in each, on one switch; or measured links.
struct Network {
  std::string name;             ///< "10gbe"
  double bytes_per_second = 0;  ///< Line rate of one card, each direction.
  /// Share of the line rate that carries gradients; the rest is headers and software overhead.
  double goodput_share = 1;
  double latency = 0;      ///< Seconds one way for a small message, including software.
  double per_message = 0;  ///< CPU seconds per message, which delay the node's other messages.
  int cards = 1;           ///< Per node.
  /// Rate added by each further card, in cards.
  double further_card = schedule::fitted::kFurtherCard;
  /// Rate of half of the nodes' ports divided by the switches' rate to the other half.
  double oversubscription = 1;
  std::string source;  ///< Origin of the figures.
  /// Measured by `gradwire probe`: links may differ. The members above then describe the slowest
  /// node.
  std::optional<topology::Topology> measured;
  std::string engine = "own";  ///< It moves the bytes: own, mpi, gloo or nccl.
  /// Collectives take the time of the engine's bus bandwidth, `bytes_per_second`, and of hops of
  /// `latency` (0: unknown, not counted). Otherwise they take that of gradwire's schedules.
  bool by_bus_bandwidth = false;

  /// Bytes per second of a node over all its cards, each direction.
  double goodput() const;
  /// Returns true if the engine has gradwire's communicators, which codecs need.
  bool takes_codecs() const { return engine == "own" || engine == "mpi"; }
};

std::vector<std::string_view> network_names();

/// Returns a network of the catalogue, of a rate as in "40Gb/s", or of a file that `gradwire probe`
/// wrote. '-' and '_' are equivalent, and case is ignored. Throws Exception(invalid_argument) for
/// an unknown name, with the nearest valid one, or an invalid file.
Network network_named(const std::string& name);

/// Returns the network as the collectives of an engine use it. `bandwidth`: their bus bandwidth, as
/// nccl-tests defines it ("42GB/s"), or a file of `gradwire bench all_reduce --json`: then that of
/// its longest message, and the latency of its shortest one. Throws Exception(invalid_argument,
/// system).
Network network_of_engine(const std::string& engine, const std::string& bandwidth);

/// Returns the network of a measured topology: the slowest host's port, and the median latency.
Network network_of(const topology::Topology& topology);

}  // namespace gradwire::plan

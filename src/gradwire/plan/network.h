#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/topology/topology.h"

namespace gradwire {

/// What joins the nodes: each has the same network cards, on one switch; or measured links.
struct Network {
  std::string name;             ///< "10gbe"
  double bytes_per_second = 0;  ///< Line rate of one card, each direction.
  /// The part of it that carries gradients: the rest are headers, and what software loses.
  double goodput_share = 1;
  double latency = 0;      ///< Seconds one way for a small message, software included.
  double per_message = 0;  ///< Seconds of a processor for each message, which others wait for.
  int cards = 1;           ///< Of each node.
  /// What each card but the first adds, in cards: striping is not free. Of the source study's two
  /// cards: 89.8 -> 94.5 %, where twice the bandwidth would make it 94.6 %.
  double further_card = 0.95;
  /// How many times less than all ports together the switches carry between halves of the nodes.
  double oversubscription = 1;
  std::string source;  ///< Where the figures come from.
  /// As `gradwire probe` measured it: links may differ. The members above then describe the
  /// slowest node.
  std::optional<Topology> measured;

  /// Bytes per second that a node gets through all its cards, each direction.
  double goodput() const;
};

std::vector<std::string_view> network_names();

/// A network of the catalogue; or a rate, as in "40Gb/s"; or a file that `gradwire probe` wrote.
/// '-' and '_' are the same, and so are upper and lower case. Throws Exception(invalid_argument):
/// an unknown name, with the nearest right one; what is wrong with the file.
Network network_named(const std::string& name);

/// What a measured topology says: the slowest host's port, and the median latency.
Network network_of(const Topology& topology);

}  // namespace gradwire

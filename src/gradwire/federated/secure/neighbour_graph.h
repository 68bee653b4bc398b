#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "gradwire/federated/client_id.h"
#include "gradwire/federated/secure/crypto.h"

namespace gradwire::federated {

/// Which clients of a round have masks in common: the members stand in a circle in random order,
/// and each is the neighbour of the nearest ones on both sides (Bell et al., "Secure Single-Server
/// Aggregation with (Poly)Logarithmic Overhead", CCS 2020, section 3.4). The order follows from the
/// seed, a hash of what all members have drawn: the server cannot choose it alone, and each client
/// computes it.
class NeighbourGraph {
 public:
  NeighbourGraph() = default;
  /// `members` are distinct and ascending. Each has degree() neighbours: degree_among().
  NeighbourGraph(std::vector<ClientId> members, int neighbours, const Digest& seed);

  int degree() const { return degree_; }
  std::span<const ClientId> members() const { return members_; }
  bool has(ClientId client) const { return places_.contains(client); }
  /// Ascending. `client` is a member.
  std::vector<ClientId> neighbours_of(ClientId client) const;
  /// At which a member has its shares of its neighbours' secrets: 1, 2, ... in order of members.
  int point_of(ClientId client) const;

 private:
  std::vector<ClientId> members_;
  std::vector<ClientId> circle_;
  std::map<ClientId, std::size_t> places_;  ///< In the circle.
  int degree_ = 0;
};

}  // namespace gradwire::federated

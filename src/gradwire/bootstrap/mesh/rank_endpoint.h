#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/net/address.h"

namespace gradwire::bootstrap {

/// Maximum number of rails: interfaces of one host used together.
inline constexpr int kMaxRails = 8;

/// One network interface on which a rank is reachable.
struct RailEndpoint {
  net::SocketAddress address;  ///< Address on which the rank listens: 10.77.0.4:41234.
  std::string interface;       ///< "gw0"; may be empty if no interface has the address.

  bool operator==(const RailEndpoint&) const = default;
};

/// Endpoints and machine of a rank, exchanged in the rendezvous.
struct RankEndpoint {
  std::string host;                 ///< Host name, for messages: "b".
  std::string machine;              ///< Job::machine or machine_identity(); empty: unknown.
  int cores = 0;                    ///< Cores of that machine; 0: unknown.
  bool shares_memory = false;       ///< May use shared memory with ranks of its machine.
  bool encrypts = false;            ///< Encrypts its traffic over the network.
  std::vector<RailEndpoint> rails;  ///< At least one, at most kMaxRails.

  /// "rank 3 (host b, 10.77.0.4:41234 over gw0)".
  std::string describe(Rank rank, int rail = 0) const;
};

/// Returns true if both are known to be on one machine.
bool same_machine(const RankEndpoint& a, const RankEndpoint& b);

/// Returns the number of connections between two ranks: rail i of one connects to rail i of the
/// other. On one machine there is a single connection.
int rails_between(const RankEndpoint& a, const RankEndpoint& b);

/// Returns, by rank, the number of its machine. Machines are numbered in the order of their lowest
/// rank.
std::vector<int> machine_numbers(const std::vector<RankEndpoint>& endpoints);

/// Encodes as text for a store. Bytes that are not UTF-8 are replaced (a host name may be
/// arbitrary).
std::string encode(const RankEndpoint& endpoint);

/// Fails with corrupted.
Result<RankEndpoint> decode_rank_endpoint(const std::string& text);

}  // namespace gradwire::bootstrap

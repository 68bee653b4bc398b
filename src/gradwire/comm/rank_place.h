#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/net/address.h"

namespace gradwire {

/// More interfaces of one host than this cannot be used at once.
inline constexpr int kMaxRails = 8;

/// One of the network interfaces over which a rank can be reached.
struct RailPlace {
  SocketAddress address;  ///< Where the rank listens: 10.77.0.4:41234.
  std::string interface;  ///< "gw0"; may be empty if no interface has the address.

  bool operator==(const RailPlace&) const = default;
};

/// Where a rank is. Each leaves its own for the others when they meet.
struct RankPlace {
  std::string host;              ///< For people: "b".
  std::string machine;           ///< machine_identity(); empty: not known.
  int cores = 0;                 ///< Of that machine; 0: not known.
  bool shares_memory = false;    ///< May talk to ranks of its machine through shared memory.
  bool encrypts = false;         ///< What it sends over the network.
  std::vector<RailPlace> rails;  ///< At least one, at most kMaxRails.

  /// "rank 3 (host b, 10.77.0.4:41234 over gw0)".
  std::string describe(Rank rank, int rail = 0) const;
};

/// Whether they are certainly on one machine.
bool same_machine(const RankPlace& a, const RankPlace& b);

/// How many connections two ranks have: rail i of one leads to rail i of the other. One suffices
/// on one machine.
int rails_between(const RankPlace& a, const RankPlace& b);

/// By rank, the number of its machine: machines are numbered by their lowest rank.
std::vector<int> machine_numbers(const std::vector<RankPlace>& places);

/// As text for a store. Bytes that are no UTF-8 (a host's name may be anything) are replaced.
std::string encode(const RankPlace& place);

/// Error: corrupted.
Result<RankPlace> decode_rank_place(const std::string& text);

}  // namespace gradwire

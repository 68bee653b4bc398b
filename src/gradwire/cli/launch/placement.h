#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/cli/launch/hosts.h"

namespace gradwire {

/// Where one rank runs.
struct Placement {
  Rank rank = 0;
  std::size_t host = 0;      ///< Index into the hosts.
  int local_rank = 0;        ///< Position among the ranks of its host.
  int local_world_size = 1;  ///< Number of ranks on its host.
};

/// Assigns consecutive ranks to each host, in the order of the hosts. If any host specifies slots,
/// hosts are filled in order, and a host without slots takes one rank. Otherwise the ranks are
/// spread evenly; the first hosts take one more. `ranks`: number of ranks; nullopt: one per slot.
/// Hosts that end up without a rank are not used. Throws Exception(invalid_argument) if there are
/// more ranks than slots, or more than kMaxRanks.
std::vector<Placement> place_ranks(const std::vector<HostEntry>& hosts, std::optional<int> ranks);

}  // namespace gradwire

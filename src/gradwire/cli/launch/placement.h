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
  int local_world_size = 1;  ///< How many ranks its host has.
};

/// Gives each host consecutive ranks, in the order of the hosts. Hosts with slots are filled one
/// after the other; if none says its slots, the ranks are spread evenly (the first hosts take one
/// more). `ranks`: how many; nothing: one for every slot. Hosts that end up without a rank are not
/// used. Throws Exception(invalid_argument) if there are more ranks than slots, or than kMaxRanks.
std::vector<Placement> place_ranks(const std::vector<HostEntry>& hosts, std::optional<int> ranks);

}  // namespace gradwire

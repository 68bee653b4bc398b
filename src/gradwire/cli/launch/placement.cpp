#include "gradwire/cli/launch/placement.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

/// Returns the number of ranks on each host: hosts are filled in order. Throws
/// Exception(invalid_argument) if the slots do not suffice.
std::vector<int> fill(const std::vector<HostEntry>& hosts, int ranks) {
  std::vector<int> counts;
  int left = ranks;
  for (const HostEntry& host : hosts) {
    counts.push_back(std::min(left, host.slots.value_or(1)));
    left -= counts.back();
  }
  if (left > 0) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} ranks do not fit into the {} slots of the hosts: add slots "
                                "(a:2,b:2, or slots=2 in the hostfile), or start fewer ranks",
                                ranks, ranks - left));
  }
  return counts;
}

std::vector<int> spread(std::size_t hosts, int ranks) {
  std::vector<int> counts;
  for (int host = 0; host < static_cast<int>(hosts); ++host) {
    const int n = static_cast<int>(hosts);
    counts.push_back(ranks / n + (host < ranks % n ? 1 : 0));
  }
  return counts;
}

int all_slots(const std::vector<HostEntry>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const HostEntry& host) {
    return std::min(sum + host.slots.value_or(1), kMaxRanks + 1);
  });
}

}  // namespace

std::vector<Placement> place_ranks(const std::vector<HostEntry>& hosts, std::optional<int> ranks) {
  const int total = ranks.value_or(all_slots(hosts));
  if (total < 1 || total > kMaxRanks) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} ranks: expected 1 to {}", total, kMaxRanks));
  }
  const bool any_slots = std::any_of(hosts.begin(), hosts.end(),
                                     [](const HostEntry& h) { return h.slots.has_value(); });
  const std::vector<int> counts = any_slots ? fill(hosts, total) : spread(hosts.size(), total);
  std::vector<Placement> placements;
  for (std::size_t host = 0; host < counts.size(); ++host) {
    for (int local = 0; local < counts[host]; ++local) {
      placements.push_back({static_cast<Rank>(placements.size()), host, local, counts[host]});
    }
  }
  return placements;
}

}  // namespace gradwire

#include "gradwire/cli/probe/rounds.h"

#include <algorithm>
#include <set>

namespace gradwire {
namespace {

/// The circle method: one host stays, the others advance by one place after each round.
std::vector<HostPair> in_circle_order(int hosts) {
  const int places = hosts + hosts % 2;
  std::vector<HostPair> pairs;
  for (int round = 0; round < places - 1; ++round) {
    const auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1);
    };
    for (int i = 0; i < places / 2; ++i) {
      const auto [a, b] = std::minmax({at(i), at(places - 1 - i)});
      if (b < hosts) pairs.emplace_back(a, b);
    }
  }
  return pairs;
}

}  // namespace

std::vector<std::vector<HostPair>> rounds_of_pairs(const std::vector<int>& machines) {
  std::vector<std::vector<HostPair>> rounds;
  std::set<int> busy;
  for (const HostPair& pair : in_circle_order(static_cast<int>(machines.size()))) {
    const int a = machines[static_cast<std::size_t>(pair.first)];
    const int b = machines[static_cast<std::size_t>(pair.second)];
    if (rounds.empty() || busy.contains(a) || busy.contains(b)) {
      rounds.emplace_back();
      busy.clear();
    }
    rounds.back().push_back(pair);
    busy.insert({a, b});
  }
  return rounds;
}

}  // namespace gradwire

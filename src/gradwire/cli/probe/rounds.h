#pragma once

#include <utility>
#include <vector>

namespace gradwire {

/// Two hosts that measure each other.
using HostPair = std::pair<int, int>;

/// Returns all pairs of hosts 0 .. n-1, n = machines.size(), in rounds of pairs that do not disturb
/// each other: no two pairs of a round share a host, or hosts on one machine, which would share its
/// processors (as containers do). machines[h] is host h's machine. If every host is on a separate
/// machine there are n - 1 rounds, or n if n is odd.
std::vector<std::vector<HostPair>> rounds_of_pairs(const std::vector<int>& machines);

}  // namespace gradwire

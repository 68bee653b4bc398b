#pragma once

#include <utility>
#include <vector>

namespace gradwire {

/// Two hosts that measure each other.
using HostPair = std::pair<int, int>;

/// Returns all pairs of hosts 0 .. n-1, n = machines.size(), in rounds of pairs that do not disturb
/// each other. No two pairs of a round share a host or a machine: hosts on one machine, such as
/// containers, share its processors. machines[h] is host h's machine. If every host is on a
/// separate machine there are n - 1 rounds, or n if n is odd.
std::vector<std::vector<HostPair>> rounds_of_pairs(const std::vector<int>& machines);

}  // namespace gradwire

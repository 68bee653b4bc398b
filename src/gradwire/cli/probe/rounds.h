#pragma once

#include <utility>
#include <vector>

namespace gradwire {

/// Two hosts that measure each other.
using HostPair = std::pair<int, int>;

/// All pairs of hosts 0 .. n-1, n = machines.size(), in rounds. Within a round nobody disturbs
/// anybody: no two pairs have a host in common, nor hosts on one machine, which would share its
/// processors (as containers, or hosts made for a test, do). machines[h] names host h's machine.
/// With every host on a machine of its own there are n - 1 rounds, or n if n is odd.
std::vector<std::vector<HostPair>> rounds_of_pairs(const std::vector<int>& machines);

}  // namespace gradwire

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradwire {

/// From one host to another, by number.
using HostsFromTo = std::pair<int, int>;

/// The paths on which something is wrong, in words: "between c and every other host" if c is at one
/// end of all of them and none of its is missing; so for one direction, "from c to every other
/// host"; else "from a to b, from b to a, ...". `all`: the paths that were looked at.
std::string name_paths(const std::vector<HostsFromTo>& affected,
                       const std::vector<HostsFromTo>& all, const std::vector<std::string>& names);

}  // namespace gradwire

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradwire::cli {

/// A path from one host to another, by number.
using HostsFromTo = std::pair<int, int>;

/// Returns the affected paths in words: "between all hosts" if they are all of more than two hosts;
/// "between c and every other host" if they are exactly all paths from and to c; likewise for one
/// direction, "from c to every other host"; else "from a to b, from b to a, ...". `all`: the paths
/// that were examined.
std::string name_paths(const std::vector<HostsFromTo>& affected,
                       const std::vector<HostsFromTo>& all, const std::vector<std::string>& names);

}  // namespace gradwire::cli

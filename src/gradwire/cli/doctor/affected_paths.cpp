#include "gradwire/cli/doctor/affected_paths.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire::cli {
namespace {

using Fits = std::function<bool(const HostsFromTo&)>;

constexpr std::size_t kMaxNamed = 8;

/// Returns true if the affected paths are exactly those that fit, and more than one.
bool are_those(const Fits& fits, const std::vector<HostsFromTo>& affected,
               const std::vector<HostsFromTo>& all) {
  return affected.size() > 1 && std::ranges::all_of(affected, fits) &&
         static_cast<std::size_t>(std::ranges::count_if(all, fits)) == affected.size();
}

}  // namespace

std::string name_paths(const std::vector<HostsFromTo>& affected,
                       const std::vector<HostsFromTo>& all, const std::vector<std::string>& names) {
  const auto name = [&](int host) { return names[static_cast<std::size_t>(host)]; };
  if (names.size() > 2 && affected.size() == all.size()) return "between all hosts";
  // With two hosts, "every other host" would add nothing.
  for (int host = 0; names.size() > 2 && host < static_cast<int>(names.size()); ++host) {
    const auto leaves = [&](const HostsFromTo& path) { return path.first == host; };
    const auto enters = [&](const HostsFromTo& path) { return path.second == host; };
    const auto touches = [&](const HostsFromTo& path) { return leaves(path) || enters(path); };
    if (are_those(touches, affected, all)) {
      return fmt::format("between {} and every other host", name(host));
    }
    if (are_those(leaves, affected, all)) {
      return fmt::format("from {} to every other host", name(host));
    }
    if (are_those(enters, affected, all)) {
      return fmt::format("from every other host to {}", name(host));
    }
  }
  std::vector<std::string> parts;
  for (const auto& [from, to] : affected) {
    if (parts.size() == kMaxNamed) break;
    parts.push_back(fmt::format("from {} to {}", name(from), name(to)));
  }
  const std::string more =
      affected.size() > kMaxNamed ? fmt::format(", and {} more", affected.size() - kMaxNamed) : "";
  return fmt::format("{}{}", fmt::join(parts, ", "), more);
}

}  // namespace gradwire::cli

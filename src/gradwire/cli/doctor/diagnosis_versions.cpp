#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/cli/doctor/diagnosis.h"

namespace gradwire::cli {
namespace {

/// A value, and the names of the hosts that have it.
using Group = std::pair<std::string, std::vector<std::string>>;

/// Groups the hosts by value, the most frequent first. Hosts without a value ("") are omitted.
template <class Get>
std::vector<Group> by_value(const ClusterReport& cluster_report, Get get) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const HostReport& report : cluster_report.reports) {
    const std::string value = report.info ? get(*report.info) : "";
    if (!value.empty()) groups[value].push_back(report.name);
  }
  std::vector<Group> sorted(groups.begin(), groups.end());
  std::ranges::stable_sort(sorted, std::greater<>(),
                           [](const Group& g) { return g.second.size(); });
  return sorted;
}

std::string list_groups(const std::vector<Group>& groups) {
  std::vector<std::string> parts;
  for (const auto& [value, names] : groups) {
    parts.push_back(fmt::format("{} on {}", value, fmt::join(names, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

void add_gradwires(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  const auto groups = by_value(cluster_report, [](const HostInfo& info) {
    return fmt::format("gradwire {} (build {}, protocol {})", info.version, info.build,
                       info.protocol);
  });
  if (groups.size() < 2) return;
  findings.push_back({true, "the hosts have different builds of gradwire: " + list_groups(groups),
                      "install the same build on every host"});
}

void add_torches(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  for (const HostReport& report : cluster_report.reports) {
    if (!report.info || report.info->torch_problem.empty()) continue;
    findings.push_back(
        {true,
         fmt::format("{}: gradwire train does not start: {}", report.name,
                     report.info->torch_problem),
         fmt::format("on {}: gradwire train --help shows the error; install the PyTorch that this "
                     "gradwire was built with, or reinstall gradwire",
                     report.name)});
  }
  const auto groups = by_value(cluster_report, [](const HostInfo& info) { return info.torch; });
  if (groups.size() < 2) return;
  findings.push_back(
      {true, "gradwire train would run with different versions of PyTorch: " + list_groups(groups),
       fmt::format("install the same version on every host: pip install torch=={}",
                   groups.front().first)});
}

/// Not every job uses Python, so that hosts without the package are only a note.
void add_pythons(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  const auto groups = by_value(cluster_report, [](const HostInfo& info) { return info.python; });
  if (groups.size() > 1) {
    findings.push_back(
        {true, "python3 has different packages: " + list_groups(groups),
         "install the same wheel of gradwire and the same PyTorch for python3 on every host"});
  }
  std::vector<std::string> without;
  for (const HostReport& report : cluster_report.reports) {
    if (report.info && report.info->python.empty()) without.push_back(report.name);
  }
  if (groups.empty() || without.empty()) return;
  findings.push_back({false,
                      fmt::format("{}: python3 has no gradwire; {}", fmt::join(without, ", "),
                                  list_groups(groups)),
                      "for jobs in Python: install the same wheel there, or use python of the same "
                      "virtual environment on every host"});
}

void add_systems(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  const auto groups = by_value(cluster_report, [](const HostInfo& info) { return info.system; });
  if (groups.size() < 2) return;
  findings.push_back({false, "the hosts run different systems: " + list_groups(groups),
                      "no action is needed if the same gradwire runs on all hosts"});
}

}  // namespace

std::vector<Finding> diagnose_versions(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  add_gradwires(cluster_report, findings);
  add_torches(cluster_report, findings);
  add_pythons(cluster_report, findings);
  add_systems(cluster_report, findings);
  return findings;
}

}  // namespace gradwire::cli

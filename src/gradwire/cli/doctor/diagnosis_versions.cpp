#include <algorithm>
#include <functional>
#include <map>
#include <optional>

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

/// The first host's Python, which a job in Python would run on every host. A job may do without it.
void add_pythons(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  const std::optional<HostInfo>& info = cluster_report.reports.front().info;
  const HostInfo first = info.value_or(HostInfo());
  const std::string& program = first.python_program;
  const auto groups = by_value(cluster_report, [](const HostInfo& each) { return each.python; });
  if (groups.size() > 1) {
    findings.push_back(
        {true, "Python has different packages: " + list_groups(groups),
         fmt::format("install the same wheel of gradwire and the same PyTorch for {} on every host",
                     program)});
  }
  std::vector<std::string> without;
  for (const HostReport& report : cluster_report.reports) {
    if (report.info && report.info->python.empty()) without.push_back(report.name);
  }
  if (groups.empty() || without.empty()) return;
  findings.push_back(
      {!first.python.empty(),
       fmt::format("{}: there is no {} with gradwire; {}", fmt::join(without, ", "), program,
                   list_groups(groups)),
       "for jobs in Python: install the same wheel there at the same path (rsync -a copies a "
       "virtual environment), or start jobs with a Python that all hosts have"});
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

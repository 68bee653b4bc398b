#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/cli/doctor/diagnosis.h"

namespace gradwire {
namespace {

/// A value, and the names of the hosts that have it.
using Group = std::pair<std::string, std::vector<std::string>>;

/// Groups the hosts by value, the most frequent first. Hosts without a value ("") are omitted.
template <class Get>
std::vector<Group> by_value(const Examination& examination, Get get) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const Patient& patient : examination.patients) {
    const std::string value = patient.facts ? get(*patient.facts) : "";
    if (!value.empty()) groups[value].push_back(patient.name);
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

void add_gradwires(const Examination& examination, std::vector<Finding>& findings) {
  const auto groups = by_value(examination, [](const HostFacts& facts) {
    return fmt::format("gradwire {} (build {}, protocol {})", facts.version, facts.build,
                       facts.protocol);
  });
  if (groups.size() < 2) return;
  findings.push_back({true, "the hosts have different builds of gradwire: " + list_groups(groups),
                      "install the same build on every host"});
}

void add_torches(const Examination& examination, std::vector<Finding>& findings) {
  for (const Patient& patient : examination.patients) {
    if (!patient.facts || patient.facts->torch_problem.empty()) continue;
    findings.push_back(
        {true,
         fmt::format("{}: gradwire train does not start: {}", patient.name,
                     patient.facts->torch_problem),
         fmt::format("on {}: gradwire train --help shows the error; install the PyTorch that this "
                     "gradwire was built with, or reinstall gradwire",
                     patient.name)});
  }
  const auto groups = by_value(examination, [](const HostFacts& facts) { return facts.torch; });
  if (groups.size() < 2) return;
  findings.push_back(
      {true, "gradwire train would run with different versions of PyTorch: " + list_groups(groups),
       fmt::format("install the same version on every host: pip install torch=={}",
                   groups.front().first)});
}

/// Not every job uses Python, so that hosts without the package are only a note.
void add_pythons(const Examination& examination, std::vector<Finding>& findings) {
  const auto groups = by_value(examination, [](const HostFacts& facts) { return facts.python; });
  if (groups.size() > 1) {
    findings.push_back(
        {true, "python3 has different packages: " + list_groups(groups),
         "install the same wheel of gradwire and the same PyTorch for python3 on every host"});
  }
  std::vector<std::string> without;
  for (const Patient& patient : examination.patients) {
    if (patient.facts && patient.facts->python.empty()) without.push_back(patient.name);
  }
  if (groups.empty() || without.empty()) return;
  findings.push_back({false,
                      fmt::format("{}: python3 has no gradwire; {}", fmt::join(without, ", "),
                                  list_groups(groups)),
                      "for jobs in Python: install the same wheel there, or use python of the same "
                      "virtual environment on every host"});
}

void add_systems(const Examination& examination, std::vector<Finding>& findings) {
  const auto groups = by_value(examination, [](const HostFacts& facts) { return facts.system; });
  if (groups.size() < 2) return;
  findings.push_back({false, "the hosts run different systems: " + list_groups(groups),
                      "no action is needed if the same gradwire runs on all hosts"});
}

}  // namespace

std::vector<Finding> diagnose_versions(const Examination& examination) {
  std::vector<Finding> findings;
  add_gradwires(examination, findings);
  add_torches(examination, findings);
  add_pythons(examination, findings);
  add_systems(examination, findings);
  return findings;
}

}  // namespace gradwire

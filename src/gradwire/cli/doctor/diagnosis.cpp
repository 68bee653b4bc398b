#include "gradwire/cli/doctor/diagnosis.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/units.h"

namespace gradwire {
namespace {

/// "a, b" of the hosts for each value, the most frequent first.
template <class Get>
std::vector<std::pair<std::string, std::vector<std::string>>> by_value(
    const Examination& examination, Get get) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const Patient& patient : examination.patients) {
    if (patient.facts) groups[get(*patient.facts)].push_back(patient.name);
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> sorted(groups.begin(),
                                                                       groups.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& g) { return g.second.size(); });
  return sorted;
}

template <class Groups>
std::string list_groups(const Groups& groups) {
  std::vector<std::string> parts;
  for (const auto& [value, names] : groups) {
    parts.push_back(fmt::format("{} on {}", value, fmt::join(names, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

void add_mesh_errors(const Examination& examination, std::vector<Finding>& findings) {
  const bool explained = std::ranges::any_of(findings, &Finding::wrong);
  for (const Patient& patient : examination.patients) {
    if (patient.mesh_error.empty() || explained) continue;
    findings.push_back({true, fmt::format("{}: {}", patient.name, patient.mesh_error),
                        "run the doctor again when nothing else uses the network; if it stays, "
                        "look at the host and link named"});
  }
}

}  // namespace

std::vector<Finding> diagnose_hosts(const Examination& examination) {
  std::vector<Finding> findings;
  for (const Patient& patient : examination.patients) {
    if (patient.facts) continue;
    findings.push_back({true, fmt::format("{}: {}", patient.name, patient.failure),
                        patient.remedy.empty() ? "look at that host" : patient.remedy});
  }
  const auto versions = by_value(examination, [](const HostFacts& facts) {
    return fmt::format("gradwire {} (build {})", facts.version, facts.build);
  });
  if (versions.size() > 1) {
    findings.push_back({true, "the hosts have different gradwires: " + list_groups(versions),
                        "install the same build on every host"});
  }
  const auto systems = by_value(examination, [](const HostFacts& facts) { return facts.system; });
  if (systems.size() > 1) {
    findings.push_back({false, "the hosts run different systems: " + list_groups(systems),
                        "nothing need be done as long as the same gradwire runs on all"});
  }
  return findings;
}

std::vector<Finding> diagnose(const Examination& examination) {
  std::vector<Finding> findings;
  for (const auto part : {diagnose_hosts, diagnose_names, diagnose_interfaces, diagnose_limits,
                          diagnose_reach, diagnose_speed}) {
    for (Finding& finding : part(examination)) findings.push_back(std::move(finding));
  }
  add_mesh_errors(examination, findings);
  return findings;
}

std::string describe(const Examination& examination, const std::vector<Finding>& findings) {
  std::string text;
  for (const Patient& patient : examination.patients) {
    std::vector<std::string> rails;
    for (const RailFacts& rail : patient.facts ? patient.facts->rails : std::vector<RailFacts>()) {
      rails.push_back(fmt::format("{} {} MTU {}", rail.interface, rail.address, rail.mtu));
    }
    text += fmt::format("{}: {}\n", patient.name,
                        patient.facts
                            ? fmt::format("gradwire {}, {}", patient.facts->version,
                                          rails.empty() ? "no interface to use"
                                                        : fmt::format("{}", fmt::join(rails, ", ")))
                            : "not examined");
  }
  for (const Finding& finding : findings) {
    text += fmt::format("\n{}: {}\n  {}: {}\n", finding.wrong ? "WRONG" : "note", finding.what,
                        finding.wrong ? "to mend it" : "hint", finding.remedy);
  }
  const auto wrong = std::ranges::count_if(findings, &Finding::wrong);
  if (examination.patients.size() > 1 && !examination.cluster) {
    text +=
        "\nThe speed of the links was not measured, as the hosts must reach each other first.\n";
  }
  text += wrong == 0
              ? "\nNothing is wrong.\n"
              : fmt::format("\n{} {} wrong.\n", wrong, wrong == 1 ? "thing is" : "things are");
  return text;
}

}  // namespace gradwire

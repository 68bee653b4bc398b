#include "gradwire/cli/doctor/diagnosis.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire {
namespace {

void add_mesh_errors(const Examination& examination, std::vector<Finding>& findings) {
  const bool explained = std::ranges::any_of(findings, &Finding::wrong);
  for (const Patient& patient : examination.patients) {
    if (patient.mesh_error.empty() || explained) continue;
    findings.push_back({true, fmt::format("{}: {}", patient.name, patient.mesh_error),
                        "run the doctor again when nothing else uses the network; if the problem "
                        "persists, check the host and link named"});
  }
}

}  // namespace

std::vector<Finding> diagnose_hosts(const Examination& examination) {
  std::vector<Finding> findings;
  for (const Patient& patient : examination.patients) {
    if (patient.facts) continue;
    findings.push_back({true, fmt::format("{}: {}", patient.name, patient.failure),
                        patient.remedy.empty() ? "check that host" : patient.remedy});
  }
  return findings;
}

std::vector<Finding> diagnose(const Examination& examination) {
  std::vector<Finding> findings;
  for (const auto part : {diagnose_hosts, diagnose_versions, diagnose_names, diagnose_interfaces,
                          diagnose_limits, diagnose_reach, diagnose_master, diagnose_speed}) {
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
                                          rails.empty() ? "no usable interface"
                                                        : fmt::format("{}", fmt::join(rails, ", ")))
                            : "not examined");
  }
  for (const Finding& finding : findings) {
    text += fmt::format("\n{}: {}\n  {}: {}\n", finding.wrong ? "ERROR" : "note", finding.what,
                        finding.wrong ? "fix" : "hint", finding.remedy);
  }
  const auto wrong = std::ranges::count_if(findings, &Finding::wrong);
  if (examination.patients.size() > 1 && !examination.cluster) {
    text += "\nThe speed of the links was not measured: the hosts must reach each other first.\n";
  }
  text += wrong == 0 ? "\nNo problems found.\n"
                     : fmt::format("\n{} {} found.\n", wrong, wrong == 1 ? "problem" : "problems");
  return text;
}

}  // namespace gradwire

#include "gradwire/cli/doctor/diagnosis.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire::cli {
namespace {

void add_mesh_errors(const ClusterReport& cluster_report, std::vector<Finding>& findings) {
  const bool explained = std::ranges::any_of(findings, &Finding::wrong);
  for (const HostReport& report : cluster_report.reports) {
    if (report.mesh_error.empty() || explained) continue;
    findings.push_back({true, fmt::format("{}: {}", report.name, report.mesh_error),
                        "run the doctor again when nothing else uses the network; if the problem "
                        "persists, check the host and link named"});
  }
}

}  // namespace

std::vector<Finding> diagnose_hosts(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  for (const HostReport& report : cluster_report.reports) {
    if (report.info) continue;
    findings.push_back({true, fmt::format("{}: {}", report.name, report.failure),
                        report.remedy.empty() ? "check that host" : report.remedy});
  }
  return findings;
}

std::vector<Finding> diagnose(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  for (const auto part : {diagnose_hosts, diagnose_versions, diagnose_names, diagnose_interfaces,
                          diagnose_limits, diagnose_reach, diagnose_master, diagnose_speed}) {
    for (Finding& finding : part(cluster_report)) findings.push_back(std::move(finding));
  }
  add_mesh_errors(cluster_report, findings);
  return findings;
}

std::string describe(const ClusterReport& cluster_report, const std::vector<Finding>& findings) {
  std::string text;
  for (const HostReport& report : cluster_report.reports) {
    std::vector<std::string> rails;
    for (const RailInfo& rail : report.info ? report.info->rails : std::vector<RailInfo>()) {
      rails.push_back(fmt::format("{} {} MTU {}", rail.interface, rail.address, rail.mtu));
    }
    text += fmt::format("{}: {}\n", report.name,
                        report.info
                            ? fmt::format("gradwire {}, {}", report.info->version,
                                          rails.empty() ? "no usable interface"
                                                        : fmt::format("{}", fmt::join(rails, ", ")))
                            : "not examined");
    if (report.info && !report.info->other_cards.empty())
      text += fmt::format("  other engines: {}\n", fmt::join(report.info->other_cards, "; "));
  }
  text += measured_speeds(cluster_report);
  for (const Finding& finding : findings) {
    text += fmt::format("\n{}: {}\n  {}: {}\n", finding.wrong ? "ERROR" : "note", finding.what,
                        finding.wrong ? "fix" : "hint", finding.remedy);
  }
  const auto wrong = std::ranges::count_if(findings, &Finding::wrong);
  if (cluster_report.reports.size() > 1 && !cluster_report.cluster) {
    text += "\nThe speed of the links was not measured: the hosts must reach each other first.\n";
  }
  text += wrong == 0 ? "\nNo problems found.\n"
                     : fmt::format("\n{} {} found.\n", wrong, wrong == 1 ? "problem" : "problems");
  return text;
}

}  // namespace gradwire::cli

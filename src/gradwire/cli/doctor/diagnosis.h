#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/doctor/host_report.h"

namespace gradwire::cli {

/// A result of the examination.
struct Finding {
  bool wrong = true;   ///< Otherwise it is only a note.
  std::string what;    ///< The problem, with the hosts or paths concerned.
  std::string remedy;  ///< The command or setting that fixes it.

  bool operator==(const Finding&) const = default;
};

/// Returns the findings of an examination, causes before consequences. A pure function; each part
/// covers one kind of problem.
std::vector<Finding> diagnose(const ClusterReport& cluster_report);

std::vector<Finding> diagnose_hosts(const ClusterReport& cluster_report);     ///< Not examined.
std::vector<Finding> diagnose_versions(const ClusterReport& cluster_report);  ///< Versions differ.
std::vector<Finding> diagnose_names(const ClusterReport& cluster_report);
std::vector<Finding> diagnose_limits(const ClusterReport& cluster_report);      ///< Files, buffers.
std::vector<Finding> diagnose_interfaces(const ClusterReport& cluster_report);  ///< Choice, MTUs.
std::vector<Finding> diagnose_reach(const ClusterReport& cluster_report);   ///< Ports, MTU, loss.
std::vector<Finding> diagnose_master(const ClusterReport& cluster_report);  ///< Rendezvous.
std::vector<Finding> diagnose_speed(const ClusterReport& cluster_report);   ///< Slow links, clocks.

/// Returns the rates and latencies of the links, a line for each interface; "" if none were
/// measured.
std::string measured_speeds(const ClusterReport& cluster_report);

/// Returns the report as text: hosts, measured rates, findings with their remedies, conclusion.
std::string describe(const ClusterReport& cluster_report, const std::vector<Finding>& findings);

}  // namespace gradwire::cli

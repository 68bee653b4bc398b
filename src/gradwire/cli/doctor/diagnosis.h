#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/doctor/facts.h"

namespace gradwire {

/// A result of the examination.
struct Finding {
  bool wrong = true;   ///< Otherwise it is only a note.
  std::string what;    ///< The problem, with the hosts or paths concerned.
  std::string remedy;  ///< The command or setting that fixes it.

  bool operator==(const Finding&) const = default;
};

/// Returns the findings of an examination, causes before consequences. A pure function; each part
/// covers one kind of problem.
std::vector<Finding> diagnose(const Examination& examination);

std::vector<Finding> diagnose_hosts(const Examination& examination);     ///< Not examined.
std::vector<Finding> diagnose_versions(const Examination& examination);  ///< Versions differ.
std::vector<Finding> diagnose_names(const Examination& examination);
std::vector<Finding> diagnose_limits(const Examination& examination);      ///< Files, buffers.
std::vector<Finding> diagnose_interfaces(const Examination& examination);  ///< Choice, MTUs.
std::vector<Finding> diagnose_reach(const Examination& examination);       ///< Ports, MTU, loss.
std::vector<Finding> diagnose_master(const Examination& examination);      ///< Rendezvous.
std::vector<Finding> diagnose_speed(const Examination& examination);       ///< Slow links, clocks.

/// Returns the report as text: the hosts, each finding with its remedy, and a conclusion.
std::string describe(const Examination& examination, const std::vector<Finding>& findings);

}  // namespace gradwire

#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/doctor/facts.h"

namespace gradwire {

/// Something that was found.
struct Finding {
  bool wrong = true;   ///< Else it is only worth knowing.
  std::string what;    ///< A sentence: on which host, between which.
  std::string remedy;  ///< The command or setting that mends it.

  bool operator==(const Finding&) const = default;
};

/// What an examination shows, the causes before their consequences. A pure function; each part
/// looks at one kind of thing.
std::vector<Finding> diagnose(const Examination& examination);

std::vector<Finding> diagnose_hosts(const Examination& examination);     ///< Not there.
std::vector<Finding> diagnose_versions(const Examination& examination);  ///< Unequal ones.
std::vector<Finding> diagnose_names(const Examination& examination);
std::vector<Finding> diagnose_limits(const Examination& examination);      ///< Files, buffers.
std::vector<Finding> diagnose_interfaces(const Examination& examination);  ///< The choice, MTUs.
std::vector<Finding> diagnose_reach(const Examination& examination);  ///< Ports, black holes, loss.
std::vector<Finding> diagnose_master(const Examination& examination);  ///< Where the ranks meet.
std::vector<Finding> diagnose_speed(const Examination& examination);   ///< Slow links, clocks.

/// For people: the hosts, each finding with its remedy, and a conclusion.
std::string describe(const Examination& examination, const std::vector<Finding>& findings);

}  // namespace gradwire

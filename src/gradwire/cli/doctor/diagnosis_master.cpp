#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/cli/doctor/diagnosis.h"

namespace gradwire::cli {
namespace {

using Outcome = Reachability::Outcome;

/// Returns true if the first host is unreachable over all rails for the same reason;
/// diagnose_reach() then reports it.
bool is_said_of_rails(const std::vector<Reachability>& reach, Outcome outcome) {
  const auto leads_there = [](const Reachability& one) {
    return one.to == 0 && one.rail != kMasterRail;
  };
  return std::ranges::any_of(reach, leads_there) &&
         std::ranges::all_of(reach, [&](const Reachability& one) {
           return !leads_there(one) || one.outcome == outcome;
         });
}

std::string remedy_for(Outcome outcome, const std::string& place, const std::string& name) {
  const std::string port = place.substr(place.rfind(':') + 1);
  switch (outcome) {
    case Outcome::no_answer:
    case Outcome::refused:
      return fmt::format(
          "allow the hosts' network on {}: nft insert rule inet filter input tcp dport {} accept "
          "(or iptables -I INPUT -p tcp --dport {} -j ACCEPT); or name an open port with "
          "--master-port, or with --port for all connections",
          name, port, port);
    case Outcome::no_route:
      return fmt::format("name an address of {} to which all hosts have a route with --master-addr",
                         name);
    default:
      return fmt::format(
          "another program or machine also has {}: name another address with --master-addr, or "
          "another port with --master-port",
          place);
  }
}

}  // namespace

std::vector<Finding> diagnose_master(const ClusterReport& cluster_report) {
  std::vector<Finding> findings;
  const HostReport& first = cluster_report.reports.front();
  if (!first.info) return findings;
  if (!first.info->master_problem.empty()) {
    findings.push_back(
        {true,
         fmt::format("{}: rank 0 could not listen for the other ranks: {}", first.name,
                     first.info->master_problem),
         fmt::format("on {}: ss -lntp shows what holds a port: stop it, or name another one with "
                     "--master-port, or an address of this host with --master-addr",
                     first.name)});
  }
  std::map<Outcome, std::vector<std::string>> callers;
  std::map<Outcome, std::string> errors;
  for (const HostReport& report : cluster_report.reports) {
    for (const Reachability& one : report.reach.value_or(std::vector<Reachability>{})) {
      if (one.rail != kMasterRail || one.outcome == Outcome::reached) continue;
      if (is_said_of_rails(*report.reach, one.outcome)) continue;
      callers[one.outcome].push_back(report.name);
      errors[one.outcome] = one.error;
    }
  }
  for (const auto& [outcome, names] : callers) {
    findings.push_back(
        {true,
         fmt::format("{} cannot reach {} at {}, where rank 0 listens: {}", fmt::join(names, ", "),
                     first.name, first.info->master, errors[outcome]),
         remedy_for(outcome, first.info->master, first.name)});
  }
  return findings;
}

}  // namespace gradwire::cli

#include "gradwire/cli/launch/plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/cores.h"
#include "gradwire/base/error.h"
#include "gradwire/base/random_hex.h"
#include "gradwire/bootstrap/environment_variables.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/cli/launch/master.h"
#include "gradwire/cli/launch/process_tree.h"

namespace gradwire {
namespace {

std::vector<HostEntry> hosts_of(const LaunchOptions& options) {
  if (!options.hosts.empty()) return options.hosts;
  return {HostEntry{this_host_name(), "", options.ranks.value_or(usable_cores())}};
}

/// GRADWIRE_* variables of the launcher apply to the whole job, but the remote shell does not
/// forward them.
VariableList inherited_settings() {
  VariableList variables;
  for (const auto& [name, value] : own_variables()) {
    if (!name.starts_with("GRADWIRE_") || name == "GRADWIRE_SECRET" || name == kProcessMark)
      continue;
    variables.emplace_back(name, value);
  }
  return variables;
}

/// Returns the secret of ranks whose rendezvous is at `address`. Throws Exception(invalid_argument)
/// if it is too short for that address.
std::string secret_of(const LaunchOptions& options, const std::string& address) {
  const bool in_file = !options.secret.empty();
  const std::string given = in_file ? options.secret : own_variables()["GRADWIRE_SECRET"];
  if (given.empty()) return random_hex(32);
  const char* source = in_file ? "--secret-file" : "GRADWIRE_SECRET";
  if (const Status strong = check_secret_at(given, address, source); !strong) {
    throw Exception(strong.error());
  }
  return given;
}

bool all_here(const std::vector<RankPlan>& ranks) {
  return std::none_of(ranks.begin(), ranks.end(), [](const RankPlan& r) { return r.remote; });
}

std::uint16_t master_port_of(const LaunchOptions& options, const std::string& address) {
  if (options.master_port) return *options.master_port;
  if (options.port) return *options.port;
  const auto set = EnvironmentVariables(process_environment()).number("GRADWIRE_PORT", 1, 65535);
  return set ? static_cast<std::uint16_t>(*set) : free_master_port(address);
}

VariableList shared_variables(const LaunchOptions& options, const std::vector<RankPlan>& ranks,
                              const std::string& run) {
  const std::string address = options.master_address.empty()
                                  ? default_master_address(ranks.front().host, all_here(ranks))
                                  : options.master_address;
  const std::uint16_t port = master_port_of(options, address);
  VariableList variables{{"WORLD_SIZE", std::to_string(ranks.size())},
                         {"MASTER_ADDR", address},
                         {"MASTER_PORT", std::to_string(port)},
                         {"GRADWIRE_SECRET", secret_of(options, address)}};
  if (!options.interface.empty()) variables.emplace_back("GRADWIRE_INTERFACE", options.interface);
  if (options.port) variables.emplace_back("GRADWIRE_PORT", fmt::to_string(*options.port));
  // Two runs may share a secret if the user provided it: the job id tells them apart.
  const std::string job_id = own_variables()["GRADWIRE_JOB_ID"];
  variables.emplace_back("GRADWIRE_JOB_ID", job_id.empty() ? run : job_id);
  variables.insert(variables.end(), options.variables.begin(), options.variables.end());
  return variables;
}

void add_own_variables(RankPlan& rank, const std::string& run, std::size_t hosts) {
  const auto add = [&](const char* name, const auto& value) {
    rank.variables.emplace_back(name, fmt::to_string(value));
  };
  add("RANK", rank.place.rank);
  add("LOCAL_RANK", rank.place.local_rank);
  add("LOCAL_WORLD_SIZE", rank.place.local_world_size);
  add("GROUP_RANK", rank.place.host);
  add("GROUP_WORLD_SIZE", hosts);
  add(kProcessMark, fmt::format("{}.{}", rank.place.rank, run));
}

std::vector<RankPlan> place(const LaunchOptions& options) {
  const std::vector<HostEntry> hosts = hosts_of(options);
  std::vector<RankPlan> ranks;
  for (const Placement& placement : place_ranks(hosts, options.ranks)) {
    const HostEntry& host = hosts[placement.host];
    const bool remote = !options.hosts.empty() && !is_this_host(host);
    ranks.push_back({placement, host, remote, {}});
  }
  return ranks;
}

}  // namespace

JobPlan plan_job(const LaunchOptions& options) {
  JobPlan plan{random_hex(8), place(options)};
  const VariableList shared = shared_variables(options, plan.ranks, plan.run);
  const VariableList inherited = inherited_settings();
  const std::size_t hosts = plan.ranks.back().place.host + 1;
  for (RankPlan& rank : plan.ranks) {
    if (rank.remote) rank.variables = inherited;
    rank.variables.insert(rank.variables.end(), shared.begin(), shared.end());
    add_own_variables(rank, plan.run, hosts);
  }
  return plan;
}

}  // namespace gradwire

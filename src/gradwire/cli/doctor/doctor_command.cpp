#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/doctor/agent.h"
#include "gradwire/cli/doctor/agents.h"
#include "gradwire/cli/doctor/diagnosis.h"
#include "gradwire/cli/doctor/in_job.h"
#include "gradwire/cli/doctor/pipe_store.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

constexpr Duration kTotalTimeout = std::chrono::minutes(10);

struct DoctorArguments {
  LaunchArguments launch;
  bool agent = false;
  std::vector<std::string> names;
  std::string python = "python3";
};

void declare(CLI::App& app, DoctorArguments& given) {
  declare_launch_arguments(app, given.launch);
  // How the doctor starts itself on the hosts.
  app.add_flag("--agent", given.agent)->group("");
  app.add_option("--names", given.names)->group("")->delimiter(',');
  app.add_option("--python", given.python)->group("");
}

/// Runs as the doctor's agent on a host. Requests go to the original stdout; other output goes to
/// stderr.
int be_an_agent(const DoctorArguments& given) {
  UniqueFd out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  UniqueFd in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  PipeStore store(std::move(in), std::move(out));
  const net::KernelNetwork network;
  value_or_throw(examine_host(network, bootstrap::Job::from_environment(), given.names,
                              given.python, MasterPort::examined, store));
  return 0;
}

/// One rank per host.
LaunchOptions options_for_hosts(const LaunchArguments& given) {
  LaunchOptions options = launch_options_of(given);
  if (options.hosts.empty())
    options.hosts = {HostEntry{.name = this_host_name(), .address = "127.0.0.1"}};
  for (HostEntry& host : options.hosts) host.slots = 1;
  options.ranks = static_cast<int>(options.hosts.size());
  options.name = "gradwire doctor";
  options.engine = "own";  // No mpirun starts the agents.
  // The agents ask the Python that `gradwire run` would start.
  const auto search = bootstrap::process_environment()("PATH");
  const std::string python = with_interpreter({"python3"}, search.value_or("")).front();
  options.program = {own_executable(), "doctor", "--agent", "--python", python, "--names"};
  std::string names;
  for (const HostEntry& host : options.hosts) {
    names += (names.empty() ? "" : ",") + address_of(host);
  }
  options.program.push_back(names);
  return options;
}

/// Returns the plan; an error of the launcher becomes a finding.
JobPlan plan_or_find(LaunchOptions& options, std::vector<Finding>& findings) {
  try {
    return plan_job(options);
  } catch (const Exception& e) {
    if (!options.master_address.empty()) throw;
    findings.push_back({true, e.what(), "give the first host's address with --master-addr"});
    options.master_address = address_of(options.hosts.front());
    return plan_job(options);
  }
}

int print_report(const ClusterReport& cluster_report, std::vector<Finding> findings) {
  for (Finding& finding : diagnose(cluster_report)) findings.push_back(std::move(finding));
  fmt::print("{}", describe(cluster_report, findings));
  return std::ranges::any_of(findings, &Finding::wrong) ? 1 : 0;
}

int examine_hosts(const DoctorArguments& given) {
  LaunchOptions options = read_arguments([&] { return options_for_hosts(given.launch); });
  std::vector<Finding> findings;
  const JobPlan plan = plan_or_find(options, findings);
  const SteadyClock clock;
  Agents agents(options, plan, clock);
  agents.run(kTotalTimeout);
  ClusterReport found = collect(agents, agents.reports(), Duration::zero());
  found.ranks = std::max(given.launch.ranks, static_cast<int>(options.hosts.size()));
  found.port = options.port.value_or(0);
  return print_report(found, std::move(findings));
}

int examine_as_rank(const bootstrap::Job& job) {
  const auto found = value_or_throw(examine_in_job(std::make_shared<net::KernelNetwork>(), job));
  return found ? print_report(*found, {}) : 0;
}

}  // namespace

int doctor_command(int argc, char** argv) {
  DoctorArguments given;
  CLI::App app(
      "Checks for common problems before a job runs, on every host and between every two: names, "
      "interfaces, ports and firewalls, MTUs, lossy and slow links, versions, limits. Prints a fix "
      "for each problem, and exits with status 1 if there are any. Requires only the remote shell; "
      "or runs as the ranks of a job, and then requires that rank 0 can be reached.",
      "gradwire doctor");
  declare(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (given.agent) return be_an_agent(given);
  const bootstrap::Job job = bootstrap::Job::from_environment();
  if (job.launcher != "none" && given.launch.hosts.empty() && given.launch.hostfile.empty()) {
    return examine_as_rank(job);
  }
  return examine_hosts(given);
}

}  // namespace gradwire::cli

#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/bootstrap/connect.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/cli/probe/measure.h"
#include "gradwire/cli/probe/report.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire::cli {
namespace {

struct ProbeArguments {
  LaunchArguments launch;
  std::string output = "topology.json";
  double seconds = 0.3;
};

void declare(CLI::App& app, ProbeArguments& given) {
  app.add_option("--output", given.output, "file that rank 0 writes, on its host")
      ->capture_default_str();
  app.add_option("--seconds", given.seconds,
                 "seconds to send in each direction of each pair and rail")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  declare_launch_arguments(app, given.launch);
}

int be_a_rank(const bootstrap::Job& job, const ProbeArguments& given) {
  if (job.world_size < 2) {
    throw UsageError(
        "probing requires at least two ranks: gradwire probe --hosts a,b,c, or -n 2 for the link "
        "inside this host");
  }
  const net::KernelNetwork network;
  const bootstrap::Mesh mesh = value_or_throw(bootstrap::connect(network, job));
  ProbeOptions options;
  options.bandwidth_time =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(given.seconds));
  const topology::Cluster cluster = value_or_throw(
      measure_cluster(*mesh.transport, prober_of(job, mesh), network.clock(), options));
  if (job.rank != 0) return 0;
  fmt::print("{}", describe_cluster(cluster));
  topology::write_cluster(cluster, given.output);
  fmt::print("\nwritten to {}\n", given.output);
  return 0;
}

}  // namespace

int probe_command(int argc, char** argv) {
  ProbeArguments given;
  CLI::App app(
      "Measures latency, bandwidth in each direction, the largest packet and losses for every pair "
      "of hosts and rail, and the offsets of the hosts' clocks. Writes topology.json, which the "
      "tuner, the simulator and the planner read. Starts a rank on each host, or runs as a rank of "
      "a job.",
      "gradwire probe");
  declare(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bootstrap::Job job = bootstrap::Job::from_environment();
  read_arguments([&] { check_fits(given.launch, job); });
  if (!given.launch.starts_ranks(job)) return be_a_rank(job, given);
  LaunchOptions options = read_arguments([&] { return launch_options_of(given.launch); });
  options.name = "gradwire probe";
  return run_self(std::vector<std::string>(argv, argv + argc), std::move(options));
}

}  // namespace gradwire::cli

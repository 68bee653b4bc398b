#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/pipeline_compare.h"
#include "gradwire/cli/bench/pipeline_options.h"
#include "gradwire/cli/bench/pipeline_report.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/comm/communicator.h"

namespace gradwire::cli {
namespace {

void write_report(const PipelineBenchOptions& options, const std::vector<PipelineRow>& rows) {
  if (options.json.empty()) return;
  if (options.json == "-") {
    fmt::print("{}", pipeline_json(rows));
  } else {
    write_file(options.json, pipeline_json(rows));
  }
}

/// The ranks of this one's pipeline, or those with its stage, of `world`.
std::shared_ptr<Communicator> group_of(Communicator& world, int replicas, bool pipeline) {
  std::vector<Rank> ranks;
  const Rank own = world.rank();
  for (Rank rank = 0; rank < world.size(); ++rank) {
    const bool same =
        pipeline ? rank % replicas == own % replicas : rank / replicas == own / replicas;
    if (same) ranks.push_back(rank);
  }
  return world.subgroup(ranks);
}

int measure_all(const std::shared_ptr<Communicator>& world, const PipelineBenchOptions& options) {
  emulation::PipelineMeasurementOptions how = measurement_options(options);
  const bool replicated = options.replicas > 1;
  const auto communicator = replicated ? group_of(*world, options.replicas, true) : world;
  if (replicated) how.replicas.group = group_of(*world, options.replicas, false);
  const bool prints = world->rank() == 0 && options.json != "-";
  emulation::SteadyAlarm alarm;
  emulation::TransferTime transfer =
      emulation::measure_transfer(*communicator, how.message_bytes, alarm);
  transfer = {emulation::max_over_ranks(*world, transfer.transfer),
              emulation::max_over_ranks(*world, transfer.latency)};
  if (prints) {
    fmt::print("# a transfer: {:.3f} ms and {:.3f} ms of latency\n{}", 1e3 * transfer.transfer,
               1e3 * transfer.latency, pipeline_head(communicator->size(), options.micro_batches));
  }
  std::vector<PipelineRow> rows;
  for (const std::string& name : options.schedules) {
    const pipeline::PipelineSchedule schedule =
        schedule_named(name, options, communicator->size(), transfer);
    rows.push_back({.schedule = name, .barrier = options.barrier});
    rows.back().figures = emulation::measure_pipeline(communicator, schedule, how, transfer, alarm);
    emulation::PipelineFigures& figures = rows.back().figures;
    figures.step = emulation::max_over_ranks(*world, figures.step);
    figures.bubble = std::max(0.0, 1 - figures.ideal / figures.step);
    if (!prints) continue;
    fmt::print("{}", pipeline_line(rows.back()));
    std::fflush(stdout);
  }
  if (world->rank() == 0) write_report(options, rows);
  return 0;
}

int compare_all(const PipelineBenchOptions& options) {
  const std::vector<PipelineRow> rows = compare_pipelines(options);
  if (options.json != "-") {
    fmt::print("{}", pipeline_head(ranks_to_start(options.launch), options.micro_batches));
    for (const PipelineRow& row : rows) fmt::print("{}", pipeline_line(row));
  }
  write_report(options, rows);
  return 0;
}

/// Checks the arguments before ranks start. Returns how to start ranks; nullopt: this is a rank.
std::optional<LaunchOptions> checked(PipelineBenchOptions& options, const bootstrap::Job& job) {
  LaunchArguments& launch = options.launch;
  const bool placed = launch.ranks > 0 || !launch.hosts.empty() || !launch.hostfile.empty();
  if (!placed && job.world_size == 1) launch.ranks = options.stages * options.replicas;
  const bool starts = launch.starts_ranks(job);
  check_fits(launch, job);
  const int ranks = starts ? ranks_to_start(launch) : job.world_size;
  if (ranks % options.replicas != 0 ||
      (options.stages > 0 && options.stages * options.replicas != ranks)) {
    refuse(
        "--stages {} and --replicas {}: the job has {} ranks, which are stages x replicas; a "
        "rank has one stage, or several with interleaved",
        options.stages, options.replicas, ranks);
  }
  const int stages = ranks / options.replicas;
  for (const std::string& name : options.schedules) schedule_named(name, options, stages, {});
  if (options.replicas > 1 && !options.compare.empty()) {
    refuse("--compare: the other systems have no --replicas");
  }
  if (!options.compare.empty() && !starts) {
    refuse("--compare starts the ranks itself, outside any job: give --stages, -n or --hosts");
  }
  if (!starts) return std::nullopt;
  LaunchOptions made = launch_options_of(launch);
  made.name = "gradwire bench pipeline";
  return made;
}

}  // namespace

int bench_pipeline_with_store(int argc, char** argv, const StoreOpener& open_store) {
  const bootstrap::Environment environment = bootstrap::process_environment();
  PipelineBenchOptions options;
  CLI::App app("Measures pipeline schedules: emulated compute, real communication",
               "gradwire bench pipeline");
  declare(app, options, environment);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bootstrap::Job job = bootstrap::Job::from_environment(environment);
  const auto launch = read_arguments([&] { return checked(options, job); });
  if (!options.compare.empty()) return compare_all(options);
  if (launch) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), argv, argv + argc);
    return run_self(words, *launch);
  }
  const auto communicator = Communicator::connect(job, {}, open_store(job));
  return measure_all(communicator, options);
}

}  // namespace gradwire::cli

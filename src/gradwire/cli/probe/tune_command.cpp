#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/units.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/engine/links/outbox.h"
#include "gradwire/topology/topology_file.h"

namespace gradwire::cli {
namespace {

/// Rounds in which all algorithms are measured in turn, so that a disturbance affects all alike.
constexpr int kRounds = 3;

/// Algorithms whose estimate exceeds the best by more than this factor are not measured.
constexpr int kHopeless = 8;

/// Segments per message to measure, the default first, for sizes of at least kSegmented. Below,
/// segments have the minimum size anyway.
constexpr std::array<int, 3> kSegments{schedule::kSegmentsPerMessage, 8, 32};
constexpr std::size_t kSegmented = 512 * 1024;

/// Another number of segments must reduce the time to this share; a smaller gain may be noise.
constexpr double kClearly = 0.97;

struct TuneArguments {
  LaunchArguments launch;
  std::string topology = "topology.json";
  std::vector<std::string> collectives{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                       "reduce"};
  std::vector<std::string> sizes{"4", "256", "1K", "4K", "16K", "64K", "256K", "1M", "4M"};
  double seconds = 0.1;
};

void declare(CLI::App& app, TuneArguments& given) {
  app.add_option("--topology", given.topology,
                 "file of gradwire probe on rank 0's host, to which the results are added")
      ->capture_default_str();
  app.add_option("--collectives", given.collectives, "collectives to tune, a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--sizes", given.sizes, "sizes in bytes, a comma list; K, M, G are powers of two")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--seconds", given.seconds,
                 "approximate seconds to measure each algorithm at each size")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  declare_launch_arguments(app, given.launch);
}

BenchOptions bench_options(const TuneArguments& given, const std::string& collective) {
  BenchOptions options;
  options.collective = collective;
  options.sizes = given.sizes;
  options.seconds = given.seconds / kRounds;
  return options;
}

/// Returns the algorithms that may be the fastest, the same on all ranks.
std::vector<AlgorithmEstimate> candidates(Communicator& communicator, const BenchCase& what) {
  std::vector<AlgorithmEstimate> hopeful;
  Duration best = Duration::max();
  const auto all = communicator.explain(what.collective, what.bytes);
  for (const AlgorithmEstimate& e : all) {
    if (!e.measured) best = std::min(best, e.time);
  }
  for (const AlgorithmEstimate& e : all) {
    if (e.measured || e.time <= kHopeless * best) hopeful.push_back(e);
  }
  return hopeful;
}

/// Returns the median time of each case in microseconds, the same on all ranks.
std::vector<double> times_of(Communicator& communicator, const std::vector<BenchCase>& cases) {
  std::vector<std::vector<double>> times(cases.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      times[i].push_back(measure(communicator, cases[i]).median_us);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& rounds : times) {
    std::ranges::sort(rounds);
    medians.push_back(rounds[kRounds / 2]);
  }
  return medians;
}

Duration from_microseconds(double us) {
  return Duration(static_cast<std::int64_t>(1e3 * us));
}

topology::MeasuredChoice fastest_algorithm(Communicator& communicator, const BenchCase& what) {
  std::vector<BenchCase> cases;
  for (const AlgorithmEstimate& tried : candidates(communicator, what)) {
    cases.push_back(what);
    cases.back().algorithm = tried.algorithm;
    cases.back().segments = kSegments.front();
  }
  const std::vector<double> times = times_of(communicator, cases);
  const auto best = static_cast<std::size_t>(std::ranges::min_element(times) - times.begin());
  return {.collective = std::string(name_of(what.collective)),
          .ranks = communicator.size(),
          .bytes = what.bytes,
          .algorithm = cases[best].algorithm,
          .time = from_microseconds(times[best])};
}

/// Measures the best number of segments per message.
void try_segments(Communicator& communicator, BenchCase what, topology::MeasuredChoice& choice) {
  what.algorithm = choice.algorithm;
  std::vector<BenchCase> cases;
  for (const int segments : kSegments) {
    cases.push_back(what);
    cases.back().segments = segments;
  }
  const std::vector<double> times = times_of(communicator, cases);
  const auto best = static_cast<std::size_t>(std::ranges::min_element(times) - times.begin());
  if (times[best] > kClearly * times.front()) return;
  choice.segments = kSegments[best];
  choice.time = from_microseconds(times[best]);
}

topology::MeasuredChoice fastest(Communicator& communicator, const BenchCase& what) {
  topology::MeasuredChoice choice = fastest_algorithm(communicator, what);
  if (what.bytes >= kSegmented) try_segments(communicator, what, choice);
  return choice;
}

/// Adds a choice, and removes an earlier one for the same case.
void remember(topology::Cluster& cluster, const topology::MeasuredChoice& choice) {
  std::erase_if(cluster.choices, [&](const topology::MeasuredChoice& old) {
    return old.collective == choice.collective && old.ranks == choice.ranks &&
           old.bytes == choice.bytes;
  });
  cluster.choices.push_back(choice);
}

int be_a_rank(const bootstrap::Job& job, const TuneArguments& given) {
  if (job.world_size < 2) {
    throw UsageError("tuning requires at least two ranks: gradwire tune --hosts a,b,c, or -n 2");
  }
  const auto communicator = Communicator::connect(job, {.topology = given.topology});
  topology::Cluster cluster;
  if (job.rank == 0) cluster = value_or_throw(topology::read_cluster(given.topology));
  for (const std::string& collective : given.collectives) {
    for (const BenchCase& what :
         make_cases(bench_options(given, collective), communicator->size())) {
      const topology::MeasuredChoice choice = fastest(*communicator, what);
      if (job.rank != 0) continue;
      fmt::print("{:<15} {:>8}  {:<19} {:>9}{}\n", choice.collective, format_bytes(choice.bytes),
                 choice.algorithm, format_duration(choice.time),
                 choice.segments > 0 ? fmt::format("  in {} segments", choice.segments) : "");
      std::fflush(stdout);
      remember(cluster, choice);
    }
  }
  if (job.rank != 0) return 0;
  topology::write_cluster(cluster, given.topology);
  fmt::print("\nwritten to {}; set GRADWIRE_TOPOLOGY={} to use it in jobs\n", given.topology,
             given.topology);
  return 0;
}

/// Checks the names before ranks start.
void check(const TuneArguments& given, const bootstrap::Job& job) {
  check_fits(given.launch, job);
  for (const std::string& collective : given.collectives) {
    make_cases(bench_options(given, collective), 2);
  }
}

}  // namespace

int tune_command(int argc, char** argv) {
  TuneArguments given;
  CLI::App app(
      "Measures the algorithms of each collective at each size, and for the fastest one the best "
      "number of segments per message, on the hosts and links of the job. Adds the results to "
      "topology.json; they override the cost model. Run gradwire probe first. Takes one to three "
      "minutes on four hosts.",
      "gradwire tune");
  declare(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bootstrap::Job job = bootstrap::Job::from_environment();
  read_arguments([&] { check(given, job); });
  if (!given.launch.starts_ranks(job)) return be_a_rank(job, given);
  value_or_throw(topology::read_cluster(given.topology));
  LaunchOptions options = read_arguments([&] { return launch_options_of(given.launch); });
  options.name = "gradwire tune";
  return run_self(std::vector<std::string>(argv, argv + argc), std::move(options));
}

}  // namespace gradwire::cli

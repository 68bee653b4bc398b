#include "gradwire/cli/bench/bench_options.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include <unistd.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire::cli {

std::string default_python(const bootstrap::Environment& environment) {
  if (const auto given = environment("GRADWIRE_PYTHON")) return *given;
  const std::filesystem::path build =
      std::filesystem::path(own_executable()).parent_path().parent_path();
  const std::filesystem::path ours = build.parent_path() / ".venv/bin/python";
  return ::access(ours.c_str(), X_OK) == 0 ? ours.string() : "python3";
}

namespace {

void declare_measurement(CLI::App& app, BenchOptions& options) {
  app.add_option("collective", options.collective,
                 "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, "
                 "all_to_all, barrier or point_to_point")
      ->capture_default_str();
  app.add_option("--sizes", options.sizes,
                 "sizes in bytes, a comma list; K, M, G are powers of two")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--type", options.type, "element type")->capture_default_str();
  app.add_option("--op", options.op, "reduction: sum, mean, min, max, product")
      ->capture_default_str();
  app.add_option("--algorithm", options.algorithms,
                 "ring, direct, ..., a comma list, or all; default: the tuner's choice")
      ->delimiter(',');
  app.add_option("--iterations", options.iterations,
                 "measured operations per size; default: as many as take --seconds, 5 to 2000")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--seconds", options.seconds, "approximate seconds to measure each size")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "operations per size before the measured ones")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
}

void declare_output(CLI::App& app, BenchOptions& options) {
  app.add_option("--json", options.json,
                 "file to which rank 0 writes the rows; - prints them in place of the table");
  app.add_option("--plot", options.plot, "file for a plot of size against busbw (SVG)");
  app.add_option("--limit", options.limit,
                 "rate of the links, such as 10Gb/s: drawn in the plot; busbw is also printed as a "
                 "share of it");
  app.add_flag("--explain", options.explain,
               "print the tuner's estimate for each algorithm beside the measured time; on "
               "standard error with --json -");
  app.add_option("--compare", options.compare,
                 "systems to measure in turn with gradwire: gloo (through PyTorch), mpi (Open MPI, "
                 "with its fastest algorithm at each size)")
      ->delimiter(',');
  app.add_option("--rounds", options.rounds,
                 "with --compare: rounds of measurements of each system")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
         "--python", options.python,
         "Python interpreter with PyTorch, for Gloo and NCCL; default: GRADWIRE_PYTHON, else .venv "
         "beside the build folder, else python3")
      ->capture_default_str();
}

template <class T, class Named>
T named(std::string_view what, const std::string& name, std::span<const T> all, Named by_name) {
  if (const std::optional<T> found = by_name(name)) return *found;
  std::vector<std::string_view> known;
  for (const T& value : all) known.push_back(name_of(value));
  refuse(unknown_name(what, name, known));
}

schedule::Collective benchable(const std::string& name) {
  const std::vector<schedule::Collective> collectives = benchable_collectives();
  return named<schedule::Collective>(
      "collective", name, collectives,
      [&](const std::string& wanted) -> std::optional<schedule::Collective> {
        const auto found = std::ranges::find_if(
            collectives, [&](schedule::Collective c) { return name_of(c) == wanted; });
        if (found == collectives.end()) return std::nullopt;
        return *found;
      });
}

/// Rounds `bytes` down to whole elements, the same number per rank if the collective has parts, and
/// at least one.
std::size_t usable_bytes(std::size_t bytes, const BenchCase& what, int ranks) {
  if (what.collective == schedule::Collective::barrier) return 0;
  const std::size_t unit =
      size_of(what.type) *
      (schedule::has_parts(what.collective) ? static_cast<std::size_t>(ranks) : 1);
  return bytes == 0 ? 0 : std::max(bytes - bytes % unit, unit);
}

/// Returns the algorithms to measure; {""}: the tuner's choice. Throws Exception(invalid_argument)
/// for an unknown algorithm.
std::vector<std::string> algorithms_of(const BenchOptions& options, schedule::Collective collective,
                                       int ranks) {
  if (options.algorithms.empty()) return {""};
  if (options.algorithms == std::vector<std::string>{"all"}) {
    const auto names = schedule::algorithm_names(collective);
    return {names.begin(), names.end()};
  }
  for (const std::string& name : options.algorithms)
    value_or_throw(
        schedule::make_schedule({.collective = collective}, name, Tuner::assumed(ranks)));
  return options.algorithms;
}

}  // namespace

void declare(CLI::App& app, BenchOptions& options, const bootstrap::Environment& environment) {
  options.python = default_python(environment);
  declare_measurement(app, options);
  declare_launch_arguments(app, options.launch);
  declare_engine(app, options.launch, /*measures_backends=*/true);
  declare_output(app, options);
}

std::vector<BenchCase> make_cases(const BenchOptions& options, int ranks) {
  BenchCase common;
  common.collective = benchable(options.collective);
  common.type = named<DataType>("type", options.type, all_data_types(), data_type_named);
  common.op = named<ReduceOp>("reduction", options.op, all_reduce_ops(), reduce_op_named);
  common.iterations = options.iterations;
  common.seconds = options.seconds;
  common.warmup = options.warmup;
  const auto algorithms = algorithms_of(options, common.collective, ranks);
  const std::size_t sizes =
      common.collective == schedule::Collective::barrier ? 1 : options.sizes.size();
  std::vector<BenchCase> cases;
  for (std::size_t i = 0; i < sizes; ++i) {
    common.bytes = usable_bytes(value_or_throw(parse_bytes(options.sizes[i])), common, ranks);
    for (const std::string& algorithm : algorithms) {
      cases.push_back(common);
      cases.back().algorithm = algorithm;
    }
  }
  return cases;
}

double limit_gbps(const BenchOptions& options) {
  return options.limit.empty() ? 0 : value_or_throw(parse_rate(options.limit)) * 8e-9;
}

}  // namespace gradwire::cli

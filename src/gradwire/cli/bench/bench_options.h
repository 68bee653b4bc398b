#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/launch/launch_arguments.h"

namespace gradwire::cli {

/// Returns the default of --python: GRADWIRE_PYTHON of the environment; else .venv of the source
/// folder, if this program is in a build folder there; else python3.
std::string default_python(const bootstrap::Environment& environment);

/// The command line of `gradwire bench`, unparsed.
struct BenchOptions {
  std::string collective = "all_reduce";
  std::vector<std::string> sizes{"4", "256", "4K", "64K", "1M", "16M", "64M"};
  std::string type = "float32";
  std::string op = "sum";
  std::vector<std::string> algorithms;
  int iterations = 0;
  double seconds = 1;
  int warmup = 2;

  LaunchArguments launch;

  std::string json, plot, limit;
  bool explain = false;
  std::vector<std::string> compare;
  int rounds = 3;
  std::string python = "python3";
};

/// Adds the options to a command line parser; `options` must outlive it. The default of --python is
/// default_python().
void declare(CLI::App& app, BenchOptions& options, const bootstrap::Environment& environment);

/// Returns the cases in the order of the sizes, and for each size in the order of the algorithms.
/// Sizes are rounded so that every rank's part is whole and not empty. Throws
/// Exception(invalid_argument) for an unknown name, and lists the known ones.
std::vector<BenchCase> make_cases(const BenchOptions& options, int ranks);

/// Returns the rate of --limit in Gb/s; 0: no limit. Throws Exception(invalid_argument).
double limit_gbps(const BenchOptions& options);

}  // namespace gradwire::cli

#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/report/line_plot.h"

namespace gradwire::cli {

/// A case as measured on one system.
struct SystemRow {
  std::string system = "gradwire";
  BenchRow row;  ///< With several rounds: the medians of their figures.
  int rounds = 1;
  double lowest_us = 0;  ///< Range of the rounds' medians.
  double highest_us = 0;
};

/// Combines one system's rounds of a case into one row. Requires at least one round.
SystemRow combine(const std::string& system, std::span<const BenchRow> rounds);

/// The head and one line per row of the text table for gradwire alone. `limit_gbps` above 0 adds a
/// column with busbw as a share of it.
std::string table_head(int ranks, double limit_gbps);
std::string table_line(const BenchRow& row, double limit_gbps);

/// Returns a text table with the systems side by side. `rows`: for each case one row per system,
/// the same systems in every case, gradwire first.
std::string comparison_table(const std::vector<std::vector<SystemRow>>& rows, double limit_gbps);

/// Returns {"rows": [...]}: bandwidths in Gb/s, times in microseconds (docs/cli.md).
std::string to_json(std::span<const SystemRow> rows);

/// Parses the output of a peer's program, which ends with {"rows": [...]}, one row per case. Fails
/// with system if the rows are missing.
Result<std::vector<BenchRow>> parse_rows(const std::string& output,
                                         std::span<const BenchCase> cases);

/// Returns a plot of size against busbw with one line per system.
report::LinePlot bandwidth_plot(std::span<const SystemRow> rows, double limit_gbps);

/// Returns a line that names the links on which the estimates of --explain are based.
std::string links_explained(const bootstrap::Environment& environment);

/// Returns the setting that overrides the tuner: "--algorithm says ring, tree"; empty: none. Throws
/// Exception(invalid_argument) if GRADWIRE_ALGORITHM is invalid, as connecting a communicator does.
std::string overriding_choice(const BenchOptions& options, schedule::Collective collective,
                              const bootstrap::Environment& environment);

/// Returns one line per algorithm with the tuner's estimate, best first. `overriding`: result of
/// overriding_choice().
std::string estimates_explained(const BenchCase& what, std::span<const AlgorithmEstimate> estimates,
                                const std::string& overriding);

}  // namespace gradwire::cli

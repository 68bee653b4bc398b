#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/report/line_plot.h"

namespace gradwire {

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
LinePlot bandwidth_plot(std::span<const SystemRow> rows, double limit_gbps);

}  // namespace gradwire

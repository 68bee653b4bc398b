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
  BenchRow row;  ///< Of several rounds: the medians of the rounds' figures.
  int rounds = 1;
  double lowest_us = 0;  ///< Of the rounds' medians.
  double highest_us = 0;
};

/// One system's rounds of a case as one row. At least one round.
SystemRow combine(const std::string& system, std::span<const BenchRow> rounds);

/// A table for people of gradwire alone: the head, and a line a row. `limit_gbps` above 0 adds the
/// share of it that busbw is.
std::string table_head(int ranks, double limit_gbps);
std::string table_line(const BenchRow& row, double limit_gbps);

/// A table with the systems beside each other. `rows`: by case, for each case one row a system, the
/// same systems in every case and gradwire first.
std::string comparison_table(const std::vector<std::vector<SystemRow>>& rows, double limit_gbps);

/// {"rows": [...]}: bandwidths in Gb/s, times in microseconds (docs/cli.md).
std::string to_json(std::span<const SystemRow> rows);

/// What a peer's program printed, which ends in {"rows": [...]}, for the cases that it was given.
/// Errors: system, if that is not there.
Result<std::vector<BenchRow>> parse_rows(const std::string& output,
                                         std::span<const BenchCase> cases);

/// Size against busbw, a line a system.
LinePlot bandwidth_plot(std::span<const SystemRow> rows, double limit_gbps);

}  // namespace gradwire

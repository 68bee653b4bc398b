#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/emulation/emulated_pipeline.h"

namespace gradwire::cli {

/// A schedule as measured on one system.
struct PipelineRow {
  std::string system = "gradwire";
  std::string schedule;
  bool barrier = false;
  emulation::PipelineFigures figures;
};

/// Returns the round with the median step time. Requires at least one round.
PipelineRow median_round(std::span<const PipelineRow> rounds);

/// A text table: its head, and one line per row.
std::string pipeline_head(int ranks, int micro_batches);
std::string pipeline_line(const PipelineRow& row);

/// Returns {"rows": [...]}: times in milliseconds (docs/cli.md).
std::string pipeline_json(std::span<const PipelineRow> rows);

/// Parses the output of a program that ends with such JSON. Fails with system if it has not `count`
/// rows.
Result<std::vector<PipelineRow>> parse_pipeline_rows(const std::string& output, std::size_t count);

}  // namespace gradwire::cli

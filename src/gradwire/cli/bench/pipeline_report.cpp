#include "gradwire/cli/bench/pipeline_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradwire::cli {
namespace {

nlohmann::ordered_json entry_of(const PipelineRow& row) {
  const emulation::PipelineFigures& f = row.figures;
  nlohmann::ordered_json entry = {{"system", row.system},      {"schedule", row.schedule},
                                  {"barrier", row.barrier},    {"step_ms", 1e3 * f.step},
                                  {"ideal_ms", 1e3 * f.ideal}, {"bubble", f.bubble}};
  // gradwire simulates and counts only its own schedules.
  if (f.predicted > 0) entry["predicted_ms"] = 1e3 * f.predicted;
  if (f.kept > 0) entry["kept"] = f.kept;
  return entry;
}

}  // namespace

PipelineRow median_round(std::span<const PipelineRow> rounds) {
  std::vector<PipelineRow> sorted(rounds.begin(), rounds.end());
  std::ranges::sort(sorted, {}, [](const PipelineRow& row) { return row.figures.step; });
  return sorted[(sorted.size() - 1) / 2];
}

std::string pipeline_head(int ranks, int micro_batches) {
  return fmt::format(
      "# {} ranks, {} micro-batches; ms per step, of the slowest rank; bubble: share of it without "
      "compute; predicted: simulated with the transfer times measured; kept: micro-batches on a "
      "rank\n{:>14} {:>18} {:>8} {:>9} {:>9} {:>8} {:>10} {:>5}\n",
      ranks, micro_batches, "system", "schedule", "barrier", "step", "ideal", "bubble", "predicted",
      "kept");
}

std::string pipeline_line(const PipelineRow& row) {
  const emulation::PipelineFigures& f = row.figures;
  const std::string predicted = f.predicted > 0 ? fmt::format("{:.1f}", 1e3 * f.predicted) : "-";
  const std::string kept = f.kept > 0 ? fmt::to_string(f.kept) : "-";
  return fmt::format("{:>14} {:>18} {:>8} {:>9.1f} {:>9.1f} {:>7.1f}% {:>10} {:>5}\n", row.system,
                     row.schedule, row.barrier ? "yes" : "no", 1e3 * f.step, 1e3 * f.ideal,
                     100 * f.bubble, predicted, kept);
}

std::string pipeline_json(std::span<const PipelineRow> rows) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const PipelineRow& row : rows) json["rows"].push_back(entry_of(row));
  return json.dump(2) + "\n";
}

Result<std::vector<PipelineRow>> parse_pipeline_rows(const std::string& output, std::size_t count) {
  const std::size_t begin = std::min(output.find('{'), output.size());
  const auto json = nlohmann::json::parse(output.substr(begin), nullptr,
                                          /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("rows") || json["rows"].size() != count) {
    return failure(ErrorKind::system,
                   fmt::format("expected {} rows of JSON in its output:\n{}", count, output));
  }
  std::vector<PipelineRow> rows;
  for (const auto& entry : json["rows"]) {
    rows.push_back({.system = entry.value("system", ""),
                    .schedule = entry.value("schedule", ""),
                    .barrier = entry.value("barrier", false),
                    .figures = {.step = 1e-3 * entry.value("step_ms", 0.0),
                                .ideal = 1e-3 * entry.value("ideal_ms", 0.0),
                                .bubble = entry.value("bubble", 0.0),
                                .predicted = 1e-3 * entry.value("predicted_ms", 0.0),
                                .kept = entry.value("kept", 0)}});
  }
  return rows;
}

}  // namespace gradwire::cli

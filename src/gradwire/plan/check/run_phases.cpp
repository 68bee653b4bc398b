#include "gradwire/plan/check/run_phases.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/statistics.h"
#include "gradwire/report/ladder_rows.h"
#include "gradwire/report/run_record.h"

namespace gradwire::plan {
namespace {

MeasuredRun run_of(const report::LadderRow& row) {
  MeasuredRun run{.name = label_of(row)};
  run.how = {.codec = row.codec,
             .overlap = row.overlap,
             .accumulate = row.accumulate,
             .local_steps = row.local_steps,
             .ranks = row.ranks,
             .fragments = row.fragments,
             .overlap_steps = row.overlap_steps,
             .single = 1e-3 * row.single_ms};
  run.phases.compute = 1e-3 * row.single_ms;
  run.phases.exposed = 1e-3 * row.exposed_ms;
  run.phases.step = 1e-3 * row.step_ms;
  return run;
}

MeasuredRun run_of(const report::TrainingSummary& summary) {
  MeasuredRun run;
  run.how.ranks = summary.ranks;
  run.how.gradient_bytes = summary.gradient_bytes;
  run.phases.compute = summary.compute_seconds;
  run.phases.exposed = summary.exposed_seconds;
  run.phases.data = summary.data_seconds;
  run.phases.step = summary.compute_seconds + summary.exposed_seconds + summary.data_seconds;
  return run;
}

/// Reads a configuration; missing keys have the defaults of `gradwire train` (docs/training.md),
/// except overlap, which is then unknown.
RunCase case_of(const nlohmann::json& config, RunCase how) {
  using Path = nlohmann::json::json_pointer;
  const auto number = [&](const char* key, int otherwise) {
    return config.value(Path(key), otherwise);
  };
  const auto text = [&](const char* key, const std::string& otherwise) {
    return config.value(Path(key), otherwise);
  };
  how.codec = text("/parallel/codec", text("/codec", "none"));
  how.overlap = text("/parallel/overlap", "");
  how.accumulate = number("/accumulation_steps", number("/gradient_accumulation_steps",
                                                        number("/gradient_accumulation", 1)));
  how.local_steps = number("/local_steps/steps", 1);
  if (how.local_steps == 1) return how;
  how.codec = text("/local_steps/codec", "none");
  how.fragments = number("/local_steps/fragments", 1);
  how.overlap_steps = number("/local_steps/overlap_steps", 0);
  return how;
}

int zero_stage_of(const nlohmann::json& config) {
  using Path = nlohmann::json::json_pointer;
  return config.value(Path("/zero/stage"), config.value(Path("/zero_optimization/stage"), 0));
}

Result<std::vector<MeasuredRun>> from_rows(std::string_view text) {
  const auto rows = report::parse_ladder(text);
  if (!rows) return tl::unexpected(rows.error());
  std::vector<MeasuredRun> runs;
  for (const report::LadderRow& row : *rows) {
    // Skips ZeRO: the prediction is of all-reduces.
    if (row.system == "gradwire" && row.zero_stage == 0) runs.push_back(run_of(row));
  }
  return runs;
}

Result<std::vector<MeasuredRun>> from_record(std::string_view text) {
  const auto record = report::parse_run_record(text);
  if (!record) return tl::unexpected(record.error());
  MeasuredRun run = run_of(record->summary);
  run.name = record->name;
  const auto config = nlohmann::json::parse(record->config, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return std::vector{run};
  try {
    if (zero_stage_of(config) > 0) return std::vector<MeasuredRun>();
    run.how = case_of(config, run.how);
  } catch (const nlohmann::json::exception& error) {  // A value has the wrong type.
    return failure(ErrorKind::invalid_argument, fmt::format("config: {}", error.what()));
  }
  return std::vector{run};
}

Result<std::vector<MeasuredRun>> from_summary(std::string_view text) {
  const auto summary = report::parse_summary(text);
  if (!summary) return tl::unexpected(summary.error());
  return std::vector{run_of(*summary)};
}

Result<std::vector<MeasuredRun>> parse(const nlohmann::json& json, std::string_view text) {
  if (json.contains("traceEvents")) return phases_of_trace(json);
  if (json.contains("rows")) return from_rows(text);
  if (json.contains("summary")) return from_record(text);
  return from_summary(text);
}

}  // namespace

Result<std::vector<MeasuredRun>> parse_run(std::string_view text, const std::string& source) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{}: not the JSON of gradwire bench step --json or gradwire train "
                               "--json, nor a trace, nor run.json",
                               source));
  }
  auto runs = parse(json, text);
  if (!runs) return failure(runs.error().kind, fmt::format("{}: {}", source, runs.error().message));
  if (runs->empty()) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{}: it has no step of gradwire without ZeRO", source));
  }
  return runs;
}

Result<std::vector<MeasuredRun>> read_run(const std::string& path) {
  const std::filesystem::path file =
      std::filesystem::is_directory(path)
          ? std::filesystem::path(path) / report::RunRecord::kFileName
          : std::filesystem::path(path);
  const auto text = read_file(file);
  if (!text) return tl::unexpected(text.error());
  return parse_run(*text, file.string());
}

}  // namespace gradwire::plan

#include "gradwire/report/run_record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/report/step_log.h"

namespace gradwire::report {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

/// Returns a list of get(item) for each item.
template <class Item, class Get>
Json list_of(const std::vector<Item>& items, Get get) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(get(item));
  return list;
}

Json steps_json(const RunRecord& record) {
  const auto of = [&record](double RunStep::*part) {
    return list_of(record.steps, [part](const RunStep& step) { return number(step.*part); });
  };
  return {{"every", record.every},
          {"step", list_of(record.steps, [](const RunStep& step) { return step.step; })},
          {"loss", of(&RunStep::loss)},
          {"learning_rate", of(&RunStep::learning_rate)},
          {"compute_s", of(&RunStep::compute)},
          {"exposed_s", of(&RunStep::exposed)},
          {"data_s", of(&RunStep::data)}};
}

Json tests_json(const std::vector<RunTest>& tests) {
  return {{"step", list_of(tests, [](const RunTest& test) { return test.steps; })},
          {"loss", list_of(tests, [](const RunTest& test) { return number(test.loss); })},
          {"accuracy", list_of(tests, [](const RunTest& test) { return test.accuracy; })}};
}

Json memory_json(const MemoryTimeline& memory) {
  Json bytes = Json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    bytes[std::string(kMemoryCategoryNames[i])] =
        list_of(memory.samples, [i](const MemorySample& sample) { return sample.bytes[i]; });
  }
  return {{"peak_bytes", memory.peak_bytes},
          {"time_s", list_of(memory.samples, [](const auto& s) { return number(s.seconds); })},
          {"step", list_of(memory.samples, [](const MemorySample& s) { return s.step; })},
          {"bytes", std::move(bytes)}};
}

}  // namespace

std::string run_record_json(const RunRecord& record) {
  Json json{{"format", "gradwire run"},
            {"version", RunRecord::kVersion},
            {"name", record.name},
            {"strategy", record.strategy},
            {"config", record.config.empty() ? Json::object() : Json::parse(record.config)},
            {"summary", Json::parse(summary_json(record.summary))},
            {"steps", steps_json(record)},
            {"epoch_s", list_of(record.epoch_seconds, number)},
            {"peak_rank_bytes", record.peak_rank_bytes}};
  if (!record.hosts.empty()) json["hosts"] = record.hosts;
  if (!record.tests.empty()) json["tests"] = tests_json(record.tests);
  if (!record.memory.samples.empty()) json["memory"] = memory_json(record.memory);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunRecord continued(const RunRecord& earlier, RunRecord record) {
  if (record.steps.empty() || record.steps.front().step == 0) return record;
  const std::int64_t first = record.steps.front().step;
  const std::int64_t every = std::max(earlier.every, record.every);
  StepLog log;  // Many resumed runs together are as long as one.
  const auto add = [&](const RunRecord& part, std::int64_t end) {
    const auto stride = static_cast<std::size_t>(every / part.every);  // Both are powers of two.
    for (std::size_t i = 0; i < part.steps.size(); i += stride) {
      if (part.steps[i].step < end) log.add(part.steps[i]);
    }
  };
  add(earlier, first);
  add(record, std::numeric_limits<std::int64_t>::max());
  record.steps = log.steps();
  record.every = every * log.every();
  std::vector<RunTest> tests = earlier.tests;
  std::erase_if(tests, [first](const RunTest& test) { return test.steps > first; });
  record.tests.insert(record.tests.begin(), tests.begin(), tests.end());
  record.epoch_seconds.insert(record.epoch_seconds.begin(), earlier.epoch_seconds.begin(),
                              earlier.epoch_seconds.end());
  if (earlier.summary.steps == first) {
    record.summary.training += earlier.summary.training;
  } else {  // The earlier run went on after the checkpoint.
    double seconds = 0;
    for (const RunStep& step : earlier.steps) {
      if (step.step < first) seconds += step.seconds() * static_cast<double>(earlier.every);
    }
    record.summary.training +=
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  record.summary.steps += first;
  return record;
}

void write_run_record(const RunRecord& record, const std::filesystem::path& folder) {
  write_file(folder / RunRecord::kFileName, run_record_json(record));
}

namespace {

constexpr double kMany = 9e15;  ///< Below 2^53: a double holds such integers exactly.
constexpr int kManyRanks = 1 << 20;

std::int64_t whole(JsonFields& fields, std::string_view key, double min = 0) {
  const double value = fields.number(key, min, kMany);
  if (std::floor(value) != value) fields.refuse(key, "a whole number");
  return static_cast<std::int64_t>(value);
}

/// Reads a list of `size` numbers; NaN for those that are null.
std::vector<double> numbers(JsonFields& fields, std::string_view key, std::size_t size) {
  auto values = fields.numbers(key);
  if (values.size() != size) {
    fields.refuse(key, fmt::format("a list of {} numbers, as in the other columns", size));
  }
  return values;
}

/// Reads a list of `size` numbers, none missing or below `min`.
std::vector<double> column(JsonFields& fields, std::string_view key, std::size_t size, double min) {
  auto values = numbers(fields, key, size);
  const auto wrong = [min](double value) { return !(value >= min && value <= kMany); };
  if (std::ranges::any_of(values, wrong)) {
    fields.refuse(key, fmt::format("a list of numbers from {} to {}", min, kMany));
  }
  return values;
}

MemoryBytes bytes_by_category(JsonFields fields) {
  MemoryBytes bytes;
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    bytes[i] = whole(fields, kMemoryCategoryNames[i]);
  }
  return bytes;
}

MemoryPeak peak_of(JsonFields& summary) {
  MemoryPeak peak;
  if (summary.has("resident_peak_bytes")) peak.resident = whole(summary, "resident_peak_bytes");
  if (!summary.has("memory")) return peak;
  auto memory = summary.object("memory");
  peak.bytes = whole(memory, "peak_bytes");
  peak.at_peak = bytes_by_category(memory.object("at_peak"));
  peak.max = bytes_by_category(memory.object("most"));
  return peak;
}

std::vector<StalenessPart> staleness_parts(JsonFields fields) {
  const auto means = fields.numbers("mean");
  const auto mean = column(fields, "mean", means.size(), 0);
  const auto max = column(fields, "max", means.size(), 0);
  std::vector<StalenessPart> parts;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    parts.push_back({mean[i], static_cast<std::int64_t>(max[i])});
  }
  return parts;
}

StalenessPrediction prediction_of(JsonFields fields) {
  StalenessPrediction found;
  found.mean = fields.number("mean", 0, kMany);
  found.p99 = whole(fields, "p99");
  found.late = fields.number("late", 0, 1);
  return found;
}

StalenessSummary staleness_of(JsonFields fields) {
  StalenessSummary found;
  found.mean = fields.number("mean", 0, kMany);
  found.p50 = whole(fields, "p50");
  found.p99 = whole(fields, "p99");
  found.max = whole(fields, "max");
  found.rate = fields.number("rate", 0, kMany);
  found.late = fields.number("late", 0, 1);
  found.busy = fields.number("busy", 0, kMany);
  if (fields.has("version")) found.version = whole(fields, "version");
  if (fields.has("by_worker")) found.by_worker = staleness_parts(fields.object("by_worker"));
  if (fields.has("by_unit")) found.by_unit = staleness_parts(fields.object("by_unit"));
  found.advice = fields.text_or("advice", "");
  if (fields.has("lost_servers")) {
    found.lost_servers = whole(fields, "lost_servers");
    found.lost_updates = whole(fields, "lost_updates");
    found.lost_gradients = whole(fields, "lost_gradients");
  }
  if (fields.has("predicted")) found.predicted = prediction_of(fields.object("predicted"));
  return found;
}

TrainingSummary summary_of(JsonFields fields) {
  TrainingSummary summary;
  summary.ranks = fields.integer("ranks", 1, kManyRanks);
  summary.steps = whole(fields, "steps");
  summary.test_accuracy = fields.number("test_accuracy", 0, 1);
  summary.test_images = whole(fields, "test_images");
  if (fields.has("characters_per_sample"))
    summary.characters_per_sample = whole(fields, "characters_per_sample");
  summary.images_per_second = fields.number("images_per_second", 0, kMany);
  summary.training = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(fields.number("training_s", 0, 9e9)));
  summary.compute_seconds = 1e-3 * fields.number("compute_ms", -kMany, kMany);
  summary.exposed_seconds = 1e-3 * fields.number("exposed_ms", -kMany, kMany);
  summary.data_seconds = 1e-3 * fields.number("data_ms", -kMany, kMany);
  summary.gradient_bytes = fields.number("gradient_bytes_per_step", 0, kMany);
  summary.sent_bytes = fields.number("sent_bytes_per_step", -1, kMany);
  if (fields.has("codec")) summary.codec = fields.text("codec");
  if (fields.has("staleness")) summary.staleness = staleness_of(fields.object("staleness"));
  summary.checkpoint = fields.text("checkpoint");
  summary.memory = peak_of(fields);
  summary.test_loss = fields.number_or_nan("test_loss");
  return summary;
}

void read_steps(JsonFields fields, RunRecord& record) {
  record.every = std::max<std::int64_t>(whole(fields, "every"), 1);
  const auto loss = fields.numbers("loss");
  const std::size_t count = loss.size();
  const auto step = column(fields, "step", count, 0);
  const auto rate = fields.has("learning_rate")
                        ? numbers(fields, "learning_rate", count)
                        : std::vector<double>(count, RunStep().learning_rate);
  const auto compute = column(fields, "compute_s", count, -kMany);
  const auto exposed = column(fields, "exposed_s", count, 0);
  const auto data = column(fields, "data_s", count, 0);
  fields.refuse_others();
  for (std::size_t i = 0; i < count; ++i) {
    record.steps.push_back({.step = static_cast<std::int64_t>(step[i]),
                            .loss = loss[i],
                            .compute = compute[i],
                            .exposed = exposed[i],
                            .data = data[i],
                            .learning_rate = rate[i]});
  }
}

void read_tests(JsonFields fields, std::vector<RunTest>& tests) {
  const auto loss = fields.numbers("loss");
  const auto step = column(fields, "step", loss.size(), 0);
  const auto accuracy = column(fields, "accuracy", loss.size(), 0);
  fields.refuse_others();
  for (std::size_t i = 0; i < loss.size(); ++i) {
    tests.push_back(
        {.steps = static_cast<std::int64_t>(step[i]), .loss = loss[i], .accuracy = accuracy[i]});
  }
}

void read_memory(JsonFields fields, MemoryTimeline& memory) {
  memory.peak_bytes = whole(fields, "peak_bytes");
  const auto seconds = fields.numbers("time_s");
  memory.samples.resize(seconds.size());
  const auto step = column(fields, "step", seconds.size(), -1);
  auto bytes = fields.object("bytes");
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    const auto values = column(bytes, kMemoryCategoryNames[i], seconds.size(), 0);
    for (std::size_t j = 0; j < values.size(); ++j) {
      memory.samples[j].bytes[i] = static_cast<std::int64_t>(values[j]);
    }
  }
  bytes.refuse_others();
  fields.refuse_others();
  for (std::size_t j = 0; j < seconds.size(); ++j) {
    memory.samples[j].seconds = seconds[j];
    memory.samples[j].step = static_cast<std::int64_t>(step[j]);
  }
}

RunRecord record_of(JsonFields fields) {
  if (fields.text("format") != "gradwire run") fields.refuse("format", "\"gradwire run\"");
  fields.require_version(RunRecord::kVersion);
  RunRecord record;
  record.name = fields.text("name");
  record.strategy = fields.text("strategy");
  record.config = fields.json_text("config");
  record.summary = summary_of(fields.object("summary"));
  if (fields.has("hosts")) record.hosts = fields.texts("hosts");
  read_steps(fields.object("steps"), record);
  if (fields.has("tests")) read_tests(fields.object("tests"), record.tests);
  const auto epochs = fields.numbers("epoch_s");
  record.epoch_seconds = column(fields, "epoch_s", epochs.size(), 0);
  record.peak_rank_bytes = whole(fields, "peak_rank_bytes");
  if (fields.has("memory")) read_memory(fields.object("memory"), record.memory);
  fields.refuse_others();
  return record;
}

}  // namespace

Result<RunRecord> parse_run_record(std::string_view text) {
  return read_json_fields(text, "record of a run", record_of);
}

Result<TrainingSummary> parse_summary(std::string_view text) {
  return read_json_fields(text, "summary of a run", summary_of);
}

}  // namespace gradwire::report

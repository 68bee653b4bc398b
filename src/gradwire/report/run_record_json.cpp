#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "gradwire/base/atomic_file.h"
#include "gradwire/report/run_record.h"

namespace gradwire {
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
          {"compute_s", of(&RunStep::compute)},
          {"exposed_s", of(&RunStep::exposed)},
          {"data_s", of(&RunStep::data)}};
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
  if (!record.memory.samples.empty()) json["memory"] = memory_json(record.memory);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_run_record(const RunRecord& record, const std::filesystem::path& folder) {
  write_file(folder / RunRecord::kFileName, run_record_json(record));
}

}  // namespace gradwire

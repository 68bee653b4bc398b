#include "gradwire/report/ladder_rows.h"

#include <fmt/format.h>

#include "gradwire/base/json_fields.h"

namespace gradwire::report {
namespace {

constexpr double kMaxNumber = 9e15;
constexpr int kMany = 1 << 30;

/// Ignores unknown keys: the report shows the known ones.
LadderRow row_of(JsonFields& fields) {
  LadderRow row;
  row.system = fields.text("system");
  row.codec = fields.text("codec");
  row.accumulate = fields.integer("accumulate", 1, kMany);
  row.local_steps = fields.integer("local_steps", 1, kMany);
  if (fields.has("fragments")) row.fragments = fields.integer("fragments", 1, kMany);
  if (fields.has("overlap_steps")) row.overlap_steps = fields.integer("overlap_steps", 0, kMany);
  row.overlap = fields.text("overlap");
  if (fields.has("zero_stage")) row.zero_stage = fields.integer("zero_stage", 0, 3);
  row.ranks = fields.integer("ranks", 1, kMany);
  row.single_ms = fields.number("single_ms", 0, kMaxNumber);
  row.step_ms = fields.number("step_ms", 0, kMaxNumber);
  row.exposed_ms = fields.number("exposed_ms", -kMaxNumber, kMaxNumber);
  row.eta = fields.number("eta", 0, kMaxNumber);
  if (fields.has("bytes_per_step"))
    row.bytes_per_step = fields.number("bytes_per_step", 0, kMaxNumber);
  if (fields.has("bound")) row.bound = fields.number("bound", 0, 1);
  return row;
}

std::vector<LadderRow> rows_of(JsonFields fields) {
  std::vector<LadderRow> rows;
  for (auto& row : fields.objects("rows", 1)) rows.push_back(row_of(row));
  return rows;
}

}  // namespace

Result<std::vector<LadderRow>> parse_ladder(std::string_view text) {
  return read_json_fields(text, "ladder", rows_of);
}

std::string label_of(const LadderRow& row) {
  std::string label = row.zero_stage > 0 ? fmt::format("ZeRO-{}, ", row.zero_stage) : "";
  label += row.codec == "none" ? "fp32" : row.codec;
  if (row.accumulate > 1) label += fmt::format(", {} passes", row.accumulate);
  if (row.local_steps > 1) label += fmt::format(", every {} steps", row.local_steps);
  if (row.fragments > 1) label += fmt::format(", {} fragments", row.fragments);
  if (row.overlap_steps > 0) label += fmt::format(", {} overlap", row.overlap_steps);
  if (row.overlap == "none") label += ", no overlap";
  if (row.overlap == "backward") label += ", backward alone";
  return label;
}

}  // namespace gradwire::report

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "gradwire/base/units.h"
#include "gradwire/schedule/draw/drawing.h"

namespace gradwire::schedule {
namespace {

/// One row: each rank's labels at one time.
using Row = std::vector<std::string>;

/// A send is shown when it begins, all other ops when they end. So a rank's sends share the row of
/// the ops that they waited for.
Duration shown_at(const TimedEvent& event) {
  return event.kind == OpKind::send ? event.begin : event.end;
}

std::map<Duration, Row> rows_of(const Drawing& drawing) {
  std::map<Duration, Row> rows;
  // Arrivals and local ops first, then sends.
  for (const bool sending : {false, true}) {
    for (const TimedEvent& event : drawing.events) {
      if ((event.kind == OpKind::send) != sending) continue;
      Row& row = rows[shown_at(event)];
      row.resize(static_cast<std::size_t>(drawing.ranks));
      std::string& cell = row[static_cast<std::size_t>(event.rank)];
      if (!cell.empty()) cell += ' ';
      cell += event.label;
    }
  }
  return rows;
}

struct Column {
  std::string head;
  std::size_t width = 0;

  void fit(std::string_view text) { width = std::max(width, text.size()); }
};

std::string line(const std::vector<Column>& columns, std::string_view time, const Row& cells) {
  std::string text = fmt::format("{:>{}}", time, columns[0].width);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text += fmt::format("  {:<{}}", cells[i], columns[i + 1].width);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + '\n';
}

}  // namespace

std::string draw_text(const Drawing& drawing) {
  const std::map<Duration, Row> rows = rows_of(drawing);
  std::vector<Column> columns{{"time", 4}};
  Row heads;
  for (Rank rank = 0; rank < drawing.ranks; ++rank) {
    heads.push_back(fmt::format("rank {}", rank));
    columns.push_back({heads.back(), heads.back().size()});
  }
  for (const auto& [time, row] : rows) {
    columns[0].fit(format_duration(time));
    for (std::size_t i = 0; i < row.size(); ++i) columns[i + 1].fit(row[i]);
  }
  std::string text = drawing.title + "\n\n" + line(columns, "time", heads);
  for (const auto& [time, row] : rows) text += line(columns, format_duration(time), row);
  return text;
}

}  // namespace gradwire::schedule

#include "gradwire/cli/bench/bench_report.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/statistics.h"
#include "gradwire/base/units.h"

namespace gradwire::cli {
namespace {

template <class Figure>
double median_of(std::span<const BenchRow> rounds, Figure BenchRow::*figure) {
  std::vector<double> values;
  for (const BenchRow& row : rounds) values.push_back(row.*figure);
  return median(values);
}

std::string algorithm_of(const BenchRow& row) {
  return row.algorithm.empty() ? "-" : row.algorithm;
}

std::string share(double busbw_gbps, double limit_gbps) {
  return limit_gbps > 0 ? fmt::format(" {:>6.1f}%", 100 * busbw_gbps / limit_gbps) : "";
}

}  // namespace

SystemRow combine(const std::string& system, std::span<const BenchRow> rounds) {
  SystemRow combined{.system = system, .row = rounds.front()};
  combined.rounds = static_cast<int>(rounds.size());
  combined.row.median_us = median_of(rounds, &BenchRow::median_us);
  combined.row.p99_us = median_of(rounds, &BenchRow::p99_us);
  combined.row.cpu_seconds = median_of(rounds, &BenchRow::cpu_seconds);
  combined.row.wrong = 0;
  for (const BenchRow& row : rounds) combined.row.wrong += row.wrong;
  const auto [lowest, highest] = std::ranges::minmax(rounds, {}, &BenchRow::median_us);
  combined.lowest_us = lowest.median_us;
  combined.highest_us = highest.median_us;
  return combined;
}

std::string table_head(int ranks, double limit_gbps) {
  const auto line = [&](auto... heads) {
    return fmt::format("{:>12} {:>9} {:>8} {:>19} {:>11} {:>11} {:>9} {:>9}", heads...);
  };
  return fmt::format(
      "# {} ranks; times of the slowest rank; bandwidths in Gb/s; CPU seconds of a rank per 10^9 "
      "bytes; K, M, G are powers of two\n{}{} {:>8} {:>7}\n{}{} {:>8} {:>7}\n",
      ranks, line("size", "type", "redop", "algorithm", "median", "p99", "algbw", "busbw"),
      limit_gbps > 0 ? "  limit" : "", "cpu", "#wrong",
      line("(B)", "", "", "", "(us)", "(us)", "(Gb/s)", "(Gb/s)"), limit_gbps > 0 ? "       " : "",
      "(s/GB)", "");
}

std::string table_line(const BenchRow& row, double limit_gbps) {
  const BenchCase& c = row.measured;
  return fmt::format(
      "{:>12} {:>9} {:>8} {:>19} {:>11.1f} {:>11.1f} {:>9.3f} {:>9.3f}{} {:>8.3f} "
      "{:>7}\n",
      c.bytes, name_of(c.type), schedule::reduces(c.collective) ? name_of(c.op) : "none",
      algorithm_of(row), row.median_us, row.p99_us, row.algbw_gbps(), row.busbw_gbps(),
      share(row.busbw_gbps(), limit_gbps), row.cpu_seconds_per_gb(), row.wrong);
}

std::string comparison_table(const std::vector<std::vector<SystemRow>>& rows, double limit_gbps) {
  if (rows.empty()) return "";
  const SystemRow& first = rows.front().front();
  std::string table = fmt::format(
      "# {} on {} ranks, float32; medians of {} rounds in turn; busbw in Gb/s{}; cpu: seconds of a "
      "rank per 10^9 bytes; x: time relative to gradwire\n{:>12}",
      name_of(first.row.measured.collective), first.row.ranks, first.rounds,
      limit_gbps > 0 ? " and as a share of the limit" : "", "size (B)");
  for (const SystemRow& cell : rows.front()) {
    table += fmt::format(" | {:>11} {:>9}{} {:>8}", cell.system + " us", "busbw",
                         limit_gbps > 0 ? "   limit" : "", "cpu");
    table += &cell == &first ? fmt::format(" {:>11}", "p99 us") : fmt::format(" {:>7}", "x");
    table += fmt::format(" {:>19}", "algorithm");
  }
  for (const auto& line : rows) {
    const BenchRow& ours = line.front().row;
    table += fmt::format("\n{:>12}", ours.measured.bytes);
    for (const SystemRow& cell : line) {
      const BenchRow& row = cell.row;
      table += fmt::format(" | {:>11.1f} {:>9.3f}{} {:>8.3f}", row.median_us, row.busbw_gbps(),
                           share(row.busbw_gbps(), limit_gbps), row.cpu_seconds_per_gb());
      table += &cell == &line.front() ? fmt::format(" {:>11.1f}", row.p99_us)
                                      : fmt::format(" {:>7.2f}", row.median_us / ours.median_us);
      table += fmt::format(" {:>19}", algorithm_of(row));
    }
  }
  return table + "\n";
}

std::string to_json(std::span<const SystemRow> rows) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const SystemRow& cell : rows) {
    const BenchRow& row = cell.row;
    nlohmann::ordered_json entry = {{"system", cell.system}};
    if (!row.engine.empty()) entry["engine"] = row.engine;
    entry.update({{"collective", name_of(row.measured.collective)},
                  {"bytes", row.measured.bytes},
                  {"type", name_of(row.measured.type)},
                  {"ranks", row.ranks},
                  {"algorithm", row.algorithm},
                  {"iterations", row.iterations},
                  {"median_us", row.median_us},
                  {"p99_us", row.p99_us},
                  {"algbw_gbps", row.algbw_gbps()},
                  {"busbw_gbps", row.busbw_gbps()},
                  {"cpu_seconds", row.cpu_seconds},
                  {"cpu_seconds_per_gb", row.cpu_seconds_per_gb()},
                  {"wrong", row.wrong}});
    if (cell.highest_us > 0) {
      entry["rounds"] = cell.rounds;
      entry["lowest_us"] = cell.lowest_us;
      entry["highest_us"] = cell.highest_us;
    }
    json["rows"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

Result<std::vector<BenchRow>> parse_rows(const std::string& output,
                                         std::span<const BenchCase> cases) {
  const std::size_t begin = std::min(output.find('{'), output.size());
  const auto json = nlohmann::json::parse(output.substr(begin), nullptr,
                                          /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("rows") || json["rows"].size() != cases.size()) {
    return failure(ErrorKind::system, fmt::format("expected {} rows of JSON in its output:\n{}",
                                                  cases.size(), output));
  }
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& entry = json["rows"][i];
    BenchRow row{.measured = cases[i]};
    row.engine = entry.value("engine", "");
    row.algorithm = entry.value("algorithm", "");
    row.ranks = entry.value("ranks", 1);
    row.iterations = entry.value("iterations", 0);
    row.median_us = entry.value("median_us", 0.0);
    row.p99_us = entry.value("p99_us", 0.0);
    row.cpu_seconds = entry.value("cpu_seconds", 0.0);
    row.wrong = entry.value("wrong", std::size_t{0});
    rows.push_back(row);
  }
  return rows;
}

report::LinePlot bandwidth_plot(std::span<const SystemRow> rows, double limit_gbps) {
  report::LinePlot plot{.y_title = "busbw (Gb/s)", .limit = limit_gbps};
  if (limit_gbps > 0) plot.limit_name = fmt::format("limit of the links: {:.4g} Gb/s", limit_gbps);
  for (const SystemRow& cell : rows) {
    const BenchRow& row = cell.row;
    if (row.measured.bytes == 0) continue;
    plot.title = fmt::format("{} on {} ranks", name_of(row.measured.collective), row.ranks);
    auto line = std::ranges::find(plot.lines, cell.system, &report::PlotLine::name);
    if (line == plot.lines.end()) line = plot.lines.insert(line, {cell.system, {}, {}});
    line->x.push_back(static_cast<double>(row.measured.bytes));
    line->y.push_back(row.busbw_gbps());
  }
  return plot;
}

namespace {

/// Introduces the lines of estimates.
std::string_view heading(schedule::Collective collective,
                         std::span<const AlgorithmEstimate> estimates) {
  if (collective == schedule::Collective::point_to_point) {
    return "there is no choice of algorithm; the cost model estimates for one message";
  }
  return estimates.size() == 1 ? "there is only one algorithm; the cost model estimates"
                               : "the tuner estimates";
}

std::string_view how_found(const AlgorithmEstimate& estimate) {
  return estimate.measured ? " (measured by gradwire tune)" : "";
}

std::string segments_found(const AlgorithmEstimate& estimate) {
  return estimate.segments > 0 ? fmt::format(", messages in {} segments", estimate.segments) : "";
}

}  // namespace

std::string links_explained(const bootstrap::Environment& environment) {
  const std::string file = environment("GRADWIRE_TOPOLOGY").value_or("");
  return fmt::format("# the tuner uses {}\n",
                     file.empty() ? "assumed links; to use measured ones, run gradwire probe and "
                                    "set GRADWIRE_TOPOLOGY to its file"
                                  : "the links in " + file);
}

std::string overriding_choice(const BenchOptions& options, schedule::Collective collective,
                              const bootstrap::Environment& environment) {
  if (!options.algorithms.empty())
    return fmt::format("--algorithm says {}", fmt::join(options.algorithms, ", "));
  const std::string variable = "GRADWIRE_ALGORITHM";
  const ForcedAlgorithms forced =
      value_or_throw(parse_forced_algorithms(environment(variable).value_or(""), variable));
  const auto found = forced.find(collective);
  return found == forced.end() ? "" : fmt::format("{} says {}", variable, found->second);
}

std::string estimates_explained(const BenchCase& what, std::span<const AlgorithmEstimate> estimates,
                                const std::string& overriding) {
  std::string text = fmt::format("# {} {}: {}\n", name_of(what.collective),
                                 format_bytes(what.bytes), heading(what.collective, estimates));
  for (const AlgorithmEstimate& e : estimates) {
    text += fmt::format("#   {:<19} {:>8}: {} step{}, a rank sends {}{}{}\n", e.algorithm,
                        format_duration(e.time), e.steps, e.steps == 1 ? "" : "s",
                        format_bytes(e.bytes_sent), segments_found(e), how_found(e));
  }
  if (!overriding.empty()) text += fmt::format("# the tuner does not choose: {}\n", overriding);
  return text;
}

}  // namespace gradwire::cli

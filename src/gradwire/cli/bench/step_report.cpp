#include "gradwire/cli/bench/step_report.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/markup.h"
#include "gradwire/base/svg_picture.h"
#include "gradwire/base/units.h"

namespace gradwire::cli {
namespace {

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

Duration from_milliseconds(double ms) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

/// nullopt without a limit, or without the bytes that were sent.
std::optional<double> bound_of(const StepRow& row, double limit) {
  if (limit <= 0 || row.figures.bytes_per_step < 0) return std::nullopt;
  return emulation::efficiency_bound(row.what, row.figures, limit);
}

std::string bound_column(const StepRow& row, double limit) {
  if (limit <= 0) return "";
  const auto bound = bound_of(row, limit);
  return bound ? fmt::format(" {:>6.1f}%", 100 * *bound) : fmt::format(" {:>7}", "-");
}

std::string sent_column(double bytes) {
  return bytes < 0 ? "-" : format_bytes(static_cast<std::size_t>(bytes));
}

/// "16", or "16/2+7": local steps, fragments, overlap steps.
std::string local_column(const emulation::StepCase& what) {
  std::string text = fmt::format("{}", what.local_steps);
  if (what.fragments > 1) text += fmt::format("/{}", what.fragments);
  if (what.overlap_steps > 0) text += fmt::format("+{}", what.overlap_steps);
  return text;
}

std::string zero_head() {
  return fmt::format(" {:>4} {:>12} {:>10} {:>10}", "zero", "x DDP", "params", "grads");
}

/// Returns the bytes sent, in multiples of an all-reduce of the gradients; 0 if unknown.
double times_ddp(const emulation::StepFigures& figures) {
  const double all_reduce = figures.all_reduce_bytes();
  return all_reduce > 0 ? figures.bytes_per_step / all_reduce : 0;
}

std::string zero_columns(const StepRow& row) {
  const emulation::StepFigures& f = row.figures;
  const std::string times = f.bytes_per_step < 0 ? "-"
                                                 : fmt::format("{:.2f} of {:.1f}", times_ddp(f),
                                                               zero_volume(row.what.zero_stage));
  return fmt::format(" {:>4} {:>12} {:>10} {:>10}", row.what.zero_stage, times,
                     format_bytes(f.memory.parameters), format_bytes(f.memory.gradients));
}

std::string servers_head() {
  return fmt::format(" {:>7} {:>7} {:>9} {:>6} {:>5} {:>6} {:>6}", "servers", "mode", "updates/s",
                     "stale", "p99", "late", "busy");
}

std::string servers_columns(const StepRow& row) {
  if (!row.figures.served) return fmt::format(" {:>7}", row.what.servers);
  const auto& served = *row.figures.served;
  return fmt::format(" {:>7} {:>7} {:>9.1f} {:>6.2f} {:>5} {:>5.1f}% {:>5.1f}%", row.what.servers,
                     servers::mode_text(row.what.policy), served.updates_per_second,
                     served.staleness_mean, served.staleness_p99, 100 * served.late,
                     100 * served.busy);
}

void add_servers(nlohmann::ordered_json& entry, const StepRow& row) {
  entry["servers"] = row.what.servers;
  if (!row.figures.served) return;
  const auto& served = *row.figures.served;
  entry["mode"] = servers::mode_text(row.what.policy);
  entry["place"] = row.what.beside_workers ? "workers" : "own";
  entry["staleness_mean"] = served.staleness_mean;
  entry["staleness_p99"] = served.staleness_p99;
  entry["staleness_max"] = served.staleness_max;
  entry["updates_per_s"] = served.updates_per_second;
  entry["late"] = served.late;
  entry["server_busy"] = served.busy;
}

nlohmann::ordered_json entry_of(const StepRow& row, double limit) {
  const emulation::StepFigures& f = row.figures;
  nlohmann::ordered_json entry = {{"system", row.system},
                                  {"codec", row.what.codec},
                                  {"accumulate", row.what.accumulate},
                                  {"local_steps", row.what.local_steps},
                                  {"fragments", row.what.fragments},
                                  {"overlap_steps", row.what.overlap_steps},
                                  {"overlap", name_of(row.what.overlap)},
                                  {"zero_stage", row.what.zero_stage},
                                  {"ranks", f.ranks},
                                  {"steps", f.steps},
                                  {"single_ms", milliseconds(f.single)},
                                  {"step_ms", milliseconds(f.step)},
                                  {"exposed_ms", milliseconds(f.exposed)},
                                  {"eta", f.efficiency()},
                                  {"cpu_ms", 1e3 * f.cpu_seconds},
                                  {"elements", f.elements},
                                  {"all_reduce_bytes", f.all_reduce_bytes()},
                                  {"parameter_bytes", f.memory.parameters},
                                  {"gradient_bytes", f.memory.gradients}};
  if (f.bytes_per_step >= 0) entry["bytes_per_step"] = f.bytes_per_step;
  add_servers(entry, row);
  if (const auto bound = bound_of(row, limit)) entry["bound"] = *bound;
  if (row.rounds > 1) entry["rounds"] = row.rounds;
  return entry;
}

}  // namespace

StepRow median_round(std::span<const StepRow> rounds) {
  std::vector<StepRow> sorted(rounds.begin(), rounds.end());
  std::ranges::sort(sorted, {}, [](const StepRow& row) { return row.figures.step; });
  StepRow median = sorted[(sorted.size() - 1) / 2];
  median.rounds = static_cast<int>(rounds.size());
  return median;
}

std::string StepTable::head(const std::string& profile, int ranks) const {
  std::string head = fmt::format(
      "# {} on {} ranks; ms per step, of the slowest rank; sent: by a rank per step; cpu: ms of a "
      "rank per step\n",
      profile, ranks);
  if (limit > 0) {
    head += fmt::format(
        "# bound: T_s / max(T_s, T_c), T_c: time to send at {}; for passes and local steps see "
        "docs/ladder.md\n",
        format_rate(limit));
  }
  if (zero) {
    head +=
        "# x DDP: sent, in all-reduces of the gradients, measured and in theory; params, grads: "
        "peak memory of a rank\n";
  }
  if (servers) {
    head +=
        "# updates/s: gradients of a worker that were applied; stale, p99: mean and 99th "
        "percentile "
        "of their\n# staleness, in updates; late: dropped gradients; busy: time in which servers "
        "compute\n# step in modes ssp and async, and with late gradients: mean of the workers, "
        "warm-up "
        "included\n";
  }
  return head +
         fmt::format("{:>12} {:>14} {:>4} {:>8} {:>9} {:>9} {:>9} {:>9} {:>7}{} {:>10} {:>8}{}{}\n",
                     "system", "codec", "acc.", "local", "overlap", "single", "step", "exposed",
                     "eta", limit > 0 ? "   bound" : "", "sent", "cpu", zero ? zero_head() : "",
                     servers ? servers_head() : "");
}

std::string StepTable::line(const StepRow& row) const {
  const emulation::StepFigures& f = row.figures;
  return fmt::format(
      "{:>12} {:>14} {:>4} {:>8} {:>9} {:>9.1f} {:>9.1f} {:>9.1f} {:>6.1f}%{} {:>10} "
      "{:>8.1f}{}{}\n",
      row.system, row.what.codec, row.what.accumulate, local_column(row.what),
      name_of(row.what.overlap), milliseconds(f.single), milliseconds(f.step),
      milliseconds(f.exposed), 100 * f.efficiency(), bound_column(row, limit),
      sent_column(f.bytes_per_step), 1e3 * f.cpu_seconds, zero ? zero_columns(row) : "",
      servers ? servers_columns(row) : "");
}

double zero_volume(int stage) {
  return stage == 3 ? 1.5 : 1.0;
}

std::string step_json(std::span<const StepRow> rows, double limit) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const StepRow& row : rows) json["rows"].push_back(entry_of(row, limit));
  return json.dump(2) + "\n";
}

Result<std::vector<StepRow>> parse_step_rows(const std::string& output, const std::string& system,
                                             std::span<const emulation::StepCase> cases) {
  const std::size_t begin = std::min(output.find('{'), output.size());
  const auto json = nlohmann::json::parse(output.substr(begin), nullptr,
                                          /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("rows") || json["rows"].size() != cases.size()) {
    return failure(ErrorKind::system, fmt::format("expected {} rows of JSON in its output:\n{}",
                                                  cases.size(), output));
  }
  std::vector<StepRow> rows;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& entry = json["rows"][i];
    StepRow& row = rows.emplace_back();
    row.system = system;
    row.what = cases[i];
    row.figures = {.ranks = entry.value("ranks", 1),
                   .steps = entry.value("steps", 0),
                   .single = from_milliseconds(entry.value("single_ms", 0.0)),
                   .step = from_milliseconds(entry.value("step_ms", 0.0)),
                   .exposed = from_milliseconds(entry.value("exposed_ms", 0.0)),
                   .bytes_per_step = entry.value("bytes_per_step", -1.0),
                   .cpu_seconds = 1e-3 * entry.value("cpu_ms", 0.0),
                   .memory = {.parameters = entry.value("parameter_bytes", std::size_t{0}),
                              .gradients = entry.value("gradient_bytes", std::size_t{0})},
                   .elements = entry.value("elements", std::size_t{0})};
    if (cases[i].servers == 0) continue;
    row.figures.served = {.staleness_mean = entry.value("staleness_mean", 0.0),
                          .staleness_p99 = entry.value("staleness_p99", std::int64_t{0}),
                          .staleness_max = entry.value("staleness_max", std::int64_t{0}),
                          .updates_per_second = entry.value("updates_per_s", 0.0),
                          .late = entry.value("late", 0.0),
                          .busy = entry.value("server_busy", 0.0)};
  }
  return rows;
}

std::string label_of(const emulation::StepCase& what) {
  std::string label = what.codec == "none" ? "fp32" : what.codec;
  if (what.accumulate > 1) label += fmt::format(", {} passes", what.accumulate);
  if (what.local_steps > 1) label += fmt::format(", every {} steps", what.local_steps);
  if (what.fragments > 1) label += fmt::format(", {} fragments", what.fragments);
  if (what.overlap_steps > 0) label += fmt::format(", {} overlap", what.overlap_steps);
  if (what.servers > 0) {
    label += fmt::format(", {} servers, {}", what.servers, servers::mode_text(what.policy));
  }
  if (what.zero_stage > 0) label += fmt::format(", ZeRO {}", what.zero_stage);
  if (what.overlap == step::Overlap::none) label += ", no overlap";
  if (what.overlap == step::Overlap::backward) label += ", backward alone";
  return label;
}

namespace {

constexpr double kWidth = 760, kLeft = 250, kRight = 60, kTop = 52, kRow = 24, kBar = 15;
constexpr double kScale = kWidth - kLeft - kRight;

/// Colors of gradwire and of peers, distinguishable also by color-blind readers.
constexpr const char* kOurs = "#0072b2";
constexpr const char* kTheirs = "#e69f00";

void add_axis(SvgPicture& svg, double bottom) {
  for (int percent = 0; percent <= 100; percent += 20) {
    const double x = kLeft + kScale * percent / 100;
    svg.add(R"(<path d="M{:.1f} {}V{}" stroke="#e0e0e0"/>)", x, kTop - 6, bottom);
    svg.add(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{} %</text>)", x, bottom + 16, percent);
  }
}

void add_bar(SvgPicture& svg, const StepRow& row, double top, double limit) {
  const bool ours = row.system == "gradwire";
  const double eta = row.figures.efficiency();
  const double middle = top + kBar / 2 + 4;
  svg.add(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", kLeft - 8, middle,
          markup_escaped((ours ? "" : row.system + ": ") + label_of(row.what)));
  svg.add(R"(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="{}"/>)", kLeft, top, kScale * eta,
          kBar, ours ? kOurs : kTheirs);
  svg.add(R"(<text x="{:.1f}" y="{}">{:.1f} %</text>)", kLeft + kScale * eta + 5, middle,
          100 * eta);
  const auto bound = bound_of(row, limit);
  if (!bound) return;
  svg.add(R"(<path d="M{:.1f} {}v{}" stroke="#444" stroke-width="2"/>)", kLeft + kScale * *bound,
          top - 3, kBar + 6);
}

}  // namespace

std::string step_svg(std::span<const StepRow> rows, const std::string& title, double limit) {
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  SvgPicture svg(kWidth, bottom + (limit > 0 ? 48 : 28), 12);
  svg.add_title(12, 26, 16, title);
  add_axis(svg, bottom);
  for (std::size_t i = 0; i < rows.size(); ++i)
    add_bar(svg, rows[i], kTop + kRow * static_cast<double>(i), limit);
  if (limit > 0) {
    svg.add(R"(<text x="{}" y="{}" fill="#444">| bound: the bytes sent keep the link busy all the )"
            R"(time</text>)",
            kLeft, bottom + 38);
  }
  return svg.take();
}

}  // namespace gradwire::cli

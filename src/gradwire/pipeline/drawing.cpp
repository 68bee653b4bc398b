#include "gradwire/pipeline/drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/svg_picture.h"

namespace gradwire::pipeline {
namespace {

constexpr double kLeft = 70, kTop = 60;  // Room for the ranks' names, title and legend.
constexpr double kRow = 30, kBox = 24;
constexpr double kWidth = 1200;
constexpr double kDigit = 7;  // Width of a label's digit.

struct Style {
  std::string_view name, color;
};

/// Styles by Compute.
constexpr std::array<Style, 4> kStyles{{{"forward", "#8fb8de"},
                                        {"backward", "#9ccc9c"},
                                        {"gradients of inputs", "#9ccc9c"},
                                        {"gradients of weights", "#f0c36d"}}};

const Style& style_of(Compute compute) {
  return kStyles[static_cast<std::size_t>(compute)];
}

void add_legend(SvgPicture& svg, const Timeline& timeline) {
  double x = kLeft;
  for (const Compute compute :
       {Compute::forward, Compute::backward, Compute::backward_input, Compute::backward_weight}) {
    const bool used = std::ranges::any_of(
        timeline.tasks, [&](const TimedTask& each) { return each.task.compute == compute; });
    if (!used) continue;
    const Style& style = style_of(compute);
    svg.add(R"(<rect x="{:.0f}" y="34" width="12" height="12" fill="{}"/>)", x, style.color);
    svg.add(R"(<text x="{:.0f}" y="44">{}</text>)", x + 16, style.name);
    x += 40 + kDigit * static_cast<double>(style.name.size());
  }
}

void add_box(SvgPicture& svg, const TimedTask& each, bool one_stage, double scale) {
  const double x = kLeft + each.begin * scale;
  const double y = kTop + kRow * each.rank;
  const double width = (each.end - each.begin) * scale;
  svg.add(R"(<rect x="{:.2f}" y="{:.0f}" width="{:.2f}" height="{:.0f}" fill="{}" stroke="white" )"
          R"(stroke-width="0.5"><title>{}, step {}, {:.4g} to {:.4g} ms</title></rect>)",
          x, y, width, kBox, style_of(each.task.compute).color, name_of(each.task), each.step,
          1e3 * each.begin, 1e3 * each.end);
  const std::string label =
      one_stage ? fmt::format("{}", each.task.micro_batch) : name_of(each.task);
  if (width < kDigit * static_cast<double>(label.size())) return;
  svg.add(R"(<text x="{:.2f}" y="{:.0f}" text-anchor="middle">{}</text>)", x + width / 2,
          y + kBox - 8, label);
}

}  // namespace

std::string draw_text(const PipelineSchedule& schedule, const Timeline& timeline, int columns) {
  double unit = std::numeric_limits<double>::max();
  double end = 0;
  std::size_t width = 0;
  const bool one_stage = schedule.stages() == schedule.ranks();
  const auto label = [&](const Task& task) {
    const std::string text = name_of(task);
    return one_stage ? text.substr(text.find_first_of("FBIW")) : text;
  };
  for (const TimedTask& task : timeline.tasks) {
    if (task.end > task.begin) unit = std::min(unit, task.end - task.begin);
    end = std::max(end, task.end);
    width = std::max(width, label(task.task).size() + 1);
  }
  // A unit is as wide as a label, if the whole fits.
  const double scale =
      std::min(static_cast<double>(width) / unit, static_cast<double>(columns) / end);
  std::vector<std::string> lines(schedule.order.size());
  for (const TimedTask& task : timeline.tasks) {
    std::string& line = lines[static_cast<std::size_t>(task.rank)];
    const auto from = static_cast<std::size_t>(std::lround(task.begin * scale));
    const auto to = static_cast<std::size_t>(std::lround(task.end * scale));
    line.resize(std::max(line.size(), from), '.');
    std::string text = label(task.task);
    if (text.size() > to - from) text = text[text.find_first_of("FBIW")];  // No room for the rest.
    line += fmt::format("{:<{}}", text.substr(0, to - from), to - from);
  }
  std::string text;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    std::string& line = lines[rank];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("rank {:<3} {}\n", rank, line);
  }
  return text;
}

std::string draw_svg(const PipelineSchedule& schedule, const Timeline& timeline) {
  double end = 0;
  for (const TimedTask& each : timeline.tasks) end = std::max(end, each.end);
  const double scale = end > 0 ? kWidth / end : 0;
  SvgPicture svg(kLeft + kWidth + 20, kTop + kRow * schedule.ranks() + 10, 11);
  svg.add_title(
      kLeft, 22, 15,
      fmt::format("{}: {} micro-batches, {:.4g} ms, {:.1f} % idle", schedule.name,
                  schedule.micro_batches, 1e3 * timeline.step_seconds, 100 * timeline.bubble));
  add_legend(svg, timeline);
  for (Rank rank = 0; rank < schedule.ranks(); ++rank)
    svg.add(R"(<text x="14" y="{:.0f}">rank {}</text>)", kTop + kRow * rank + 16, rank);
  const bool one_stage = schedule.stages() == schedule.ranks();
  for (const TimedTask& each : timeline.tasks) add_box(svg, each, one_stage, scale);
  return svg.take();
}

}  // namespace gradwire::pipeline

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/cli/bench/step_report.h"

namespace gradwire {
namespace {

constexpr double kWidth = 760, kLeft = 250, kRight = 60, kTop = 52, kRow = 24, kBar = 15;
constexpr double kScale = kWidth - kLeft - kRight;

/// Colors of gradwire and of peers, distinguishable also by color-blind readers.
constexpr const char* kOurs = "#0072b2";
constexpr const char* kTheirs = "#e69f00";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    if (c == '<') result += "&lt;";
    if (c != '&' && c != '<') result += c;
  }
  return result;
}

std::string axis(double bottom) {
  std::string svg;
  for (int percent = 0; percent <= 100; percent += 20) {
    const double x = kLeft + kScale * percent / 100;
    svg += fmt::format("<path d=\"M{:.1f} {}V{}\" stroke=\"#e0e0e0\"/>\n", x, kTop - 6, bottom);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{} %</text>\n", x,
                       bottom + 16, percent);
  }
  return svg;
}

std::string bar(const StepRow& row, double top, double limit) {
  const bool ours = row.system == "gradwire";
  const double eta = row.figures.efficiency();
  const double middle = top + kBar / 2 + 4;
  std::string svg = fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n"
      "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n"
      "<text x=\"{:.1f}\" y=\"{}\">{:.1f} %</text>\n",
      kLeft - 8, middle, escaped((ours ? "" : row.system + ": ") + label_of(row.what)), kLeft, top,
      kScale * eta, kBar, ours ? kOurs : kTheirs, kLeft + kScale * eta + 5, middle, 100 * eta);
  if (limit > 0) {
    const double bound = efficiency_bound(row.what, row.figures, limit);
    svg += fmt::format("<path d=\"M{:.1f} {}v{}\" stroke=\"#444\" stroke-width=\"2\"/>\n",
                       kLeft + kScale * bound, top - 3, kBar + 6);
  }
  return svg;
}

}  // namespace

std::string step_svg(std::span<const StepRow> rows, const std::string& title, double limit) {
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  const double height = bottom + (limit > 0 ? 48 : 28);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"12\" y=\"26\" font-size=\"16\">{2}</text>\n",
      kWidth, height, escaped(title));
  svg += axis(bottom);
  for (std::size_t i = 0; i < rows.size(); ++i)
    svg += bar(rows[i], kTop + kRow * static_cast<double>(i), limit);
  if (limit > 0) {
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" fill=\"#444\">| bound: the bytes sent keep the link busy all the "
        "time</text>\n",
        kLeft, bottom + 38);
  }
  return svg + "</svg>\n";
}

}  // namespace gradwire

#include "gradwire/report/line_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "gradwire/base/markup.h"
#include "gradwire/base/svg_picture.h"
#include "gradwire/base/units.h"

namespace gradwire::report {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 70, kRight = 24, kTop = 48, kBottom = 64;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;

/// Distinguishable with color blindness (Okabe and Ito, "Color universal design", 2008).
constexpr std::array<const char*, 6> kColors{"#0072b2", "#d55e00", "#009e73",
                                             "#cc79a7", "#e69f00", "#56b4e9"};

/// Formats bytes as on a command line: "64 K".
std::string short_bytes(double bytes) {
  std::string text = format_bytes(static_cast<std::size_t>(bytes));
  if (text.ends_with("iB")) text.resize(text.size() - 2);
  return text;
}

/// Maps values to positions in the picture.
class Scale {
 public:
  explicit Scale(const LinePlot& plot) : top_(plot.limit) {
    double min = 1e300, max = 0;
    for (const PlotLine& line : plot.lines) {
      for (double x : line.x) min = std::min(min, x), max = std::max(max, x);
      for (double y : line.y) top_ = std::max(top_, y);
    }
    first_ = max > 0 ? std::log2(min) : 0;
    last_ = max > 0 ? std::max(std::log2(max), first_ + 1) : 1;
    top_ = top_ > 0 ? top_ * 1.08 : 1;
  }

  double x(double bytes) const {
    return kLeft + kPlotWidth * (std::log2(bytes) - first_) / (last_ - first_);
  }
  double y(double value) const { return kTop + kPlotHeight * (1 - value / top_); }

  double top() const { return top_; }
  double first() const { return first_; }
  double last() const { return last_; }

 private:
  double first_ = 0, last_ = 1, top_ = 0;
};

std::string marker(std::size_t line, double x, double y) {
  const char* color = kColors[line % kColors.size()];
  switch (line % 3) {
    case 0:
      return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)", x, y, color);
    case 1:
      return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="7" height="7" fill="{}"/>)", x - 3.5,
                         y - 3.5, color);
    default:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l-4.5 8h9z" fill="{}"/>)", x, y - 5, color);
  }
}

class Picture {
 public:
  explicit Picture(const LinePlot& plot) : plot_(plot), scale_(plot) {}

  std::string draw() {
    svg_.add_title(kLeft, 26, 16, plot_.title);
    values();
    sizes();
    limit();
    for (std::size_t i = 0; i < plot_.lines.size(); ++i) line(i);
    legend();
    return svg_.take();
  }

 private:
  void values() {
    const double step = distance_of_marks(scale_.top(), 10);
    for (int i = 0; i * step <= scale_.top(); ++i) {
      const double y = scale_.y(i * step);
      svg_.add(R"(<path d="M{} {:.1f}h{}" stroke="#e0e0e0"/>)", kLeft, y, kPlotWidth);
      svg_.add(R"(<text x="{}" y="{:.1f}" text-anchor="end">{:.4g}</text>)", kLeft - 8, y + 4,
               i * step);
    }
    svg_.add(
        R"svg(<text transform="translate(18 {}) rotate(-90)" text-anchor="middle">{}</text>)svg",
        kTop + kPlotHeight / 2, markup_escaped(plot_.y_title));
  }

  /// Labels every power of two, or every n-th, so that labels do not overlap.
  void sizes() {
    const int stride =
        std::max(1, static_cast<int>(std::ceil((scale_.last() - scale_.first()) / 14)));
    const double bottom = kTop + kPlotHeight;
    for (int power = static_cast<int>(std::ceil(scale_.first())); power <= scale_.last();
         power += stride) {
      const double bytes = std::exp2(power);
      svg_.add(R"(<path d="M{:.1f} {}v5" stroke="black"/>)", scale_.x(bytes), bottom);
      svg_.add(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", scale_.x(bytes),
               bottom + 19,
               plot_.x_title.empty() ? short_bytes(bytes) : fmt::format("{:.0f}", bytes));
    }
    svg_.add(R"(<path d="M{} {}h{}" stroke="black"/>)", kLeft, bottom, kPlotWidth);
    svg_.add(R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)", kLeft + kPlotWidth / 2,
             bottom + 40,
             plot_.x_title.empty() ? "bytes; K, M and G are powers of two"
                                   : markup_escaped(plot_.x_title));
  }

  void limit() {
    if (plot_.limit <= 0) return;
    const double y = scale_.y(plot_.limit);
    svg_.add(R"(<path d="M{} {:.1f}h{}" stroke="#444" stroke-dasharray="6 4"/>)", kLeft, y,
             kPlotWidth);
    svg_.add(R"(<text x="{}" y="{:.1f}" text-anchor="end" fill="#444">{}</text>)",
             kLeft + kPlotWidth, y - 6, markup_escaped(plot_.limit_name));
  }

  void line(std::size_t index) {
    const PlotLine& line = plot_.lines[index];
    std::string points, markers;
    for (std::size_t i = 0; i < std::min(line.x.size(), line.y.size()); ++i) {
      const double x = scale_.x(line.x[i]), y = scale_.y(line.y[i]);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      markers += marker(index, x, y);
    }
    svg_.add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>)", points,
             kColors[index % kColors.size()]);
    svg_.add("{}", markers);
  }

  void legend() {
    for (std::size_t i = 0; i < plot_.lines.size(); ++i) {
      const double y = kTop + 16 + 18 * static_cast<double>(i);
      svg_.add(R"({}<text x="{}" y="{}">{}</text>)", marker(i, kLeft + 18, y - 4), kLeft + 30, y,
               markup_escaped(plot_.lines[i].name));
    }
  }

  const LinePlot& plot_;
  Scale scale_;
  SvgPicture svg_{kWidth, kHeight, 12};
};

}  // namespace

std::string to_svg(const LinePlot& plot) {
  return Picture(plot).draw();
}

}  // namespace gradwire::report

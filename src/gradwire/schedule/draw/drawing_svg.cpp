#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/markup.h"
#include "gradwire/base/svg_picture.h"
#include "gradwire/base/units.h"
#include "gradwire/schedule/describe.h"
#include "gradwire/schedule/draw/drawing.h"

namespace gradwire::schedule {
namespace {

constexpr double kLeft = 90;      // Room for the time axis.
constexpr double kTop = 84;       // Room for title, legend and rank names.
constexpr double kSpacing = 120;  // Between ranks.
constexpr double kBar = 5;        // Width of bars: sends, receives, local ops.
constexpr std::uint32_t kLegendChunks = 16;
constexpr std::size_t kLabelledMessages = 200;

struct Point {
  double x = 0;
  double y = 0;
};

/// Chunks are spaced evenly on the color wheel, at equal lightness (HSL with S = 0.65, L = 0.42).
std::string color_of(std::uint32_t chunk, std::uint32_t chunks) {
  const double hue = 12.0 * chunk / std::max(1u, chunks);  // Twelfths of the color wheel, from red.
  const auto channel = [&](double offset) {
    const double k = std::fmod(offset + hue, 12.0);
    const double value = 0.42 - 0.65 * 0.42 * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}));
    return static_cast<int>(std::lround(255 * value));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

struct Message {
  const TimedEvent* send;
  const TimedEvent* receive;
};

/// Matches the k-th send of a to b with the k-th receive of b from a.
std::vector<Message> messages_of(const Drawing& drawing) {
  using Pair = std::pair<Rank, Rank>;
  std::map<Pair, std::vector<const TimedEvent*>> sent;
  std::map<Pair, std::vector<const TimedEvent*>> received;
  for (const TimedEvent& event : drawing.events) {
    if (event.kind == OpKind::send) sent[{event.rank, event.peer}].push_back(&event);
    const bool receives = event.kind == OpKind::recv || event.kind == OpKind::recv_reduce;
    if (receives) received[{event.peer, event.rank}].push_back(&event);
  }
  std::vector<Message> messages;
  for (auto& [stream, sends] : sent) {
    auto& answers = received[stream];
    std::ranges::sort(sends, {}, &TimedEvent::op);
    std::ranges::sort(answers, {}, &TimedEvent::op);
    for (std::size_t k = 0; k < std::min(sends.size(), answers.size()); ++k) {
      messages.push_back({sends[k], answers[k]});
    }
  }
  return messages;
}

class Picture {
 public:
  explicit Picture(const Drawing& drawing)
      : drawing_(drawing),
        messages_(messages_of(drawing)),
        height_(height_of(drawing)),
        svg_(std::max(2 * kLeft + kSpacing * (drawing.ranks - 1), 420.0), kTop + height_ + 40, 12) {
    for (const TimedEvent& event : drawing.events)
      total_ = std::max(total_, static_cast<double>(event.end.count()));
  }

  std::string draw() {
    svg_.add_title(16, 24, 16, drawing_.title);
    legend();
    time_axis();
    rank_lines();
    for (const Message& message : messages_) faint_line(message);
    for (const TimedEvent& event : drawing_.events) bar(event);
    for (const Message& message : messages_) arrow(message);
    for (const TimedEvent& event : drawing_.events) local(event);
    return svg_.take();
  }

 private:
  /// The more different times, the higher.
  static double height_of(const Drawing& drawing) {
    std::set<Duration> times;
    for (const TimedEvent& event : drawing.events) times.insert(event.end);
    return std::clamp(40.0 * static_cast<double>(times.size()), 240.0, 1400.0);
  }

  Point at(Rank rank, Duration time) const {
    const double part = total_ > 0 ? static_cast<double>(time.count()) / total_ : 0;
    return {kLeft + kSpacing * rank, kTop + height_ * part};
  }

  std::string color(const TimedEvent& event) const {
    return color_of(event.chunk, drawing_.chunks);
  }

  void legend() {
    if (drawing_.chunks < 2 || drawing_.chunks > kLegendChunks) return;
    for (std::uint32_t chunk = 0; chunk < drawing_.chunks; ++chunk) {
      const double x = 16 + 44.0 * chunk;
      svg_.add(R"(<rect x="{:.0f}" y="34" width="12" height="12" fill="{}"/>)", x,
               color_of(chunk, drawing_.chunks));
      svg_.add(R"(<text x="{:.0f}" y="44">c{}</text>)", x + 16, chunk);
    }
  }

  void time_axis() {
    const double right = at(drawing_.ranks - 1, {}).x + 30;
    const double step = distance_of_marks(std::max(total_, 1.0), 12);
    for (double t = 0; t <= total_; t += step) {
      const Duration time(std::llround(t));
      const double y = at(0, time).y;
      svg_.add(R"(<line x1="{:.0f}" y1="{:.1f}" x2="{:.0f}" y2="{:.1f}" stroke="#e4e4e4"/>)",
               kLeft - 20, y, right, y);
      svg_.add(R"(<text x="{:.0f}" y="{:.1f}" text-anchor="end" fill="#666">{}</text>)", kLeft - 26,
               y + 4, format_duration(time));
    }
  }

  void rank_lines() {
    for (Rank rank = 0; rank < drawing_.ranks; ++rank) {
      const double x = at(rank, {}).x;
      svg_.add(R"(<text x="{:.0f}" y="{:.0f}" text-anchor="middle">rank {}</text>)", x, kTop - 12,
               rank);
      svg_.add(R"(<line x1="{0:.0f}" y1="{1:.0f}" x2="{0:.0f}" y2="{2:.1f}" stroke="#999"/>)", x,
               kTop, kTop + height_);
    }
  }

  /// Duration of a send (right of the rank's line) or of a receive (left).
  void bar(const TimedEvent& event) {
    const bool sends = event.kind == OpKind::send;
    if (!sends && event.kind != OpKind::recv && event.kind != OpKind::recv_reduce) return;
    const Point from = at(event.rank, event.begin);
    const double height = at(event.rank, event.end).y - from.y;
    svg_.add(
        R"(<rect x="{:.1f}" y="{:.1f}" width="{}" height="{:.1f}" fill="{}" fill-opacity="{}">)"
        R"(<title>{}</title></rect>)",
        from.x + (sends ? 1 : -1 - kBar), from.y, kBar, height, color(event),
        event.critical ? 1.0 : 0.45, markup_escaped(event.label));
  }

  /// Path of the message's first byte.
  void faint_line(const Message& message) {
    const Point from = at(message.send->rank, message.send->begin);
    const Point to = at(message.receive->rank, message.receive->begin);
    svg_.add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" )"
             R"(stroke-opacity="0.35" stroke-dasharray="3 3"/>)",
             from.x, from.y, to.x, to.y, color(*message.send));
  }

  /// Path of the message's last byte, with an arrow head, and with a label unless there are too
  /// many.
  void arrow(const Message& message) {
    const Point from = at(message.send->rank, message.send->end);
    const Point to = at(message.receive->rank, message.receive->end);
    const bool critical = message.send->critical && message.receive->critical;
    svg_.add(R"(<g stroke="{0}" fill="{0}"><title>{1}</title>)", color(*message.send),
             markup_escaped(fmt::format("{}: {} to {}", message.receive->label,
                                        format_duration(message.send->begin),
                                        format_duration(message.receive->end))));
    svg_.add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke-width="{}"/>)", from.x,
             from.y, to.x, to.y, critical ? 3 : 1.4);
    const std::array<Point, 2> head = head_of(from, to);
    svg_.add(R"(<polygon points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)", to.x, to.y,
             head[0].x, head[0].y, head[1].x, head[1].y);
    svg_.add("</g>");
    if (messages_.size() <= kLabelledMessages) label(message, from, to);
  }

  /// The two rear corners of the arrow head.
  static std::array<Point, 2> head_of(Point from, Point to) {
    const double length = std::max(1e-9, std::hypot(to.x - from.x, to.y - from.y));
    const Point along{9 * (to.x - from.x) / length, 9 * (to.y - from.y) / length};
    const Point across{-along.y * 0.4, along.x * 0.4};
    return {{{to.x - along.x + across.x, to.y - along.y + across.y},
             {to.x - along.x - across.x, to.y - along.y - across.y}}};
  }

  /// Places the label near the sender, where arrows to several ranks have diverged and cross no
  /// others.
  void label(const Message& message, Point from, Point to) {
    const double part = std::min(0.4, 0.3 * kSpacing / std::max(1.0, std::abs(to.x - from.x)));
    const std::string_view text =
        std::string_view(message.send->label).substr(0, message.send->label.find('>'));
    svg_.add(
        R"(<text x="{:.1f}" y="{:.1f}" font-size="10" text-anchor="middle" fill="{}">{}</text>)",
        from.x + part * (to.x - from.x), from.y + part * (to.y - from.y) - 4, color(*message.send),
        markup_escaped(text));
  }

  void local(const TimedEvent& event) {
    if (event.kind != OpKind::copy && event.kind != OpKind::reduce) return;
    const Point from = at(event.rank, event.begin);
    const double height = std::max(2.0, at(event.rank, event.end).y - from.y);
    svg_.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{}" height="{:.1f}" fill="#333">)"
             R"(<title>{}</title></rect>)",
             from.x - kBar / 4, from.y, kBar / 2, height, markup_escaped(event.label));
  }

  const Drawing& drawing_;
  std::vector<Message> messages_;
  double total_ = 0;
  double height_;
  SvgPicture svg_;
};

}  // namespace

std::string draw_svg(const Drawing& drawing) {
  return Picture(drawing).draw();
}

}  // namespace gradwire::schedule

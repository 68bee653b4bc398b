#include "gradwire/trace/step_trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <utility>

#include "gradwire/base/statistics.h"

namespace gradwire {

TraceIntervals united(TraceIntervals intervals) {
  std::ranges::sort(intervals, {}, &TraceInterval::begin);
  TraceIntervals result;
  for (const auto& next : intervals) {
    if (next.begin >= next.end) continue;
    if (result.empty() || next.begin > result.back().end) {
      result.push_back(next);
    } else {
      result.back().end = std::max(result.back().end, next.end);
    }
  }
  return result;
}

TraceIntervals without(const TraceIntervals& a, const TraceIntervals& b) {
  TraceIntervals result;
  auto hole = b.begin();
  for (auto [begin, end] : a) {
    while (hole != b.end() && hole->end <= begin) ++hole;
    for (auto next = hole; next != b.end() && next->begin < end; ++next) {
      if (begin < next->begin) result.push_back({begin, next->begin});
      begin = std::max(begin, next->end);
    }
    if (begin < end) result.push_back({begin, end});
  }
  return result;
}

Duration length_within(const TraceIntervals& intervals, TraceInterval window) {
  Duration length{};
  auto next = std::ranges::upper_bound(intervals, window.begin, {}, &TraceInterval::end);
  for (; next != intervals.end() && next->begin < window.end; ++next) {
    length += std::min(next->end, window.end) - std::max(next->begin, window.begin);
  }
  return length;
}

namespace {

constexpr std::size_t kKinds = 8;

std::size_t index_of(TraceKind kind) {
  return static_cast<std::size_t>(kind);
}

/// Assigns every moment to the innermost span of the computing thread: the one that began last.
class Sweep {
 public:
  explicit Sweep(const std::vector<TraceSpan>& spans) : spans_(spans) {
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].kind == TraceKind::communication || spans[i].begin == spans[i].end) continue;
      events_.push_back({spans[i].begin, i, true});
      events_.push_back({spans[i].end, i, false});
    }
    std::ranges::sort(events_, {}, &Event::at);
  }

  /// Returns the intervals of each kind.
  std::array<TraceIntervals, kKinds> run() {
    for (const auto& event : events_) {
      if (!active_.empty()) {
        const auto kind = spans_[active_.rbegin()->second].kind;
        parts_[index_of(kind)].push_back({from_, event.at});
      }
      from_ = event.at;
      if (event.begins) {
        active_.insert(order_of(event.span));
      } else {
        active_.erase(order_of(event.span));
      }
    }
    for (auto& part : parts_) part = united(std::move(part));
    return std::move(parts_);
  }

 private:
  struct Event {
    Time at;
    std::size_t span = 0;
    bool begins = false;
  };
  /// The shorter of two spans that began at the same time is inside; of equal ones, the one
  /// recorded first.
  using Order = std::pair<std::pair<Time, Duration>, std::size_t>;
  struct Outermost {
    bool operator()(const Order& a, const Order& b) const {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    }
  };

  Order order_of(std::size_t span) const {
    return {{spans_[span].begin, spans_[span].begin - spans_[span].end}, span};
  }

  const std::vector<TraceSpan>& spans_;
  std::vector<Event> events_;
  std::set<Order, Outermost> active_;
  Time from_{};
  std::array<TraceIntervals, kKinds> parts_;
};

TraceIntervals buckets_under_way(const TraceLog& log) {
  TraceIntervals all;
  for (const auto& span : log.spans) {
    if (span.kind == TraceKind::communication) all.push_back({span.begin, span.end});
  }
  return united(std::move(all));
}

}  // namespace

std::vector<StepBreakdown> break_down(const TraceLog& log) {
  const auto parts = Sweep(log.spans).run();
  const auto& waits = parts[index_of(TraceKind::wait)];
  const auto hidden = without(buckets_under_way(log), waits);
  std::vector<StepBreakdown> steps;
  for (const auto& span : log.spans) {
    if (span.kind != TraceKind::step || span.begin < log.complete_since) continue;
    const TraceInterval window{span.begin, span.end};
    const auto part = [&](TraceKind kind) { return length_within(parts[index_of(kind)], window); };
    StepBreakdown step{.step = span.step,
                       .begin = span.begin,
                       .total = span.end - span.begin,
                       .data = part(TraceKind::data),
                       .forward = part(TraceKind::forward),
                       .backward = part(TraceKind::backward),
                       .optimizer = part(TraceKind::optimizer),
                       .exposed = part(TraceKind::wait),
                       .hidden = length_within(hidden, window),
                       .bytes = span.bytes};
    step.other =
        step.total - step.data - step.forward - step.backward - step.optimizer - step.exposed;
    steps.push_back(step);
  }
  std::ranges::stable_sort(steps, {}, &StepBreakdown::begin);
  return steps;
}

StepMedians medians_of(const std::vector<StepBreakdown>& steps) {
  const auto of = [&steps](const auto& part) {
    std::vector<double> values;
    for (const auto& step : steps)
      values.push_back(std::chrono::duration<double>(part(step)).count());
    return median(std::move(values));
  };
  std::vector<double> bytes;
  for (const auto& step : steps) bytes.push_back(static_cast<double>(step.bytes));
  return {.total = of([](const auto& s) { return s.total; }),
          .data = of([](const auto& s) { return s.data; }),
          .forward = of([](const auto& s) { return s.forward; }),
          .backward = of([](const auto& s) { return s.backward; }),
          .optimizer = of([](const auto& s) { return s.optimizer; }),
          .exposed = of([](const auto& s) { return s.exposed; }),
          .other = of([](const auto& s) { return s.other; }),
          .hidden = of([](const auto& s) { return s.hidden; }),
          .busy = of([](const auto& s) { return s.busy(); }),
          .bytes = median(std::move(bytes))};
}

}  // namespace gradwire

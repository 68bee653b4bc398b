#include "gradwire/trace/chrome_trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradwire {
namespace {

/// Ends of the open spans in a lane, the innermost last.
using Lane = std::vector<Time>;

void close_until(Lane& lane, Time time) {
  while (!lane.empty() && lane.back() <= time) lane.pop_back();
}

}  // namespace

std::vector<SpanLane> assign_lanes(const std::vector<TraceSpan>& spans) {
  std::vector<SpanLane> places;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    places.push_back({.span = i, .communication = spans[i].kind == TraceKind::communication});
  }
  std::ranges::stable_sort(places, {}, [&spans](const SpanLane& place) {
    const auto& span = spans[place.span];
    return std::tuple(span.begin, -span.end.time_since_epoch(), span.kind != TraceKind::step);
  });
  std::vector<Lane> computing;
  std::vector<Lane> communicating;
  for (auto& place : places) {
    const auto& span = spans[place.span];
    auto& lanes = place.communication ? communicating : computing;
    const auto fits = [&](Lane& lane) {
      close_until(lane, span.begin);
      return lane.empty() || (!place.communication && span.end <= lane.back());
    };
    auto lane = std::ranges::find_if(lanes, fits);
    if (lane == lanes.end()) lane = lanes.emplace(lanes.end());
    lane->push_back(span.end);
    place.lane = static_cast<int>(lane - lanes.begin());
  }
  return places;
}

namespace {

constexpr std::string_view kWaitFor = "wait for ";

/// Returns the indices of communications by name, in the order in which they began.
std::map<std::string_view, std::vector<std::size_t>> communications_of(const TraceLog& log) {
  std::map<std::string_view, std::vector<std::size_t>> by_name;
  for (std::size_t i = 0; i < log.spans.size(); ++i) {
    const TraceSpan& span = log.spans[i];
    if (span.kind == TraceKind::communication) by_name[log.names[span.name]].push_back(i);
  }
  for (auto& [name, all] : by_name) {
    std::ranges::stable_sort(all, {}, [&](std::size_t i) { return log.spans[i].begin; });
  }
  return by_name;
}

}  // namespace

std::vector<TraceFlow> flows_of(const TraceLog& log) {
  const auto communications = communications_of(log);
  std::vector<TraceFlow> flows;
  for (std::size_t i = 0; i < log.spans.size(); ++i) {
    const TraceSpan& wait = log.spans[i];
    const std::string_view name = log.names[wait.name];
    if (wait.kind != TraceKind::wait || !name.starts_with(kWaitFor)) continue;
    const auto found = communications.find(name.substr(kWaitFor.size()));
    if (found == communications.end()) continue;
    const auto after = std::ranges::upper_bound(found->second, wait.end, {},
                                                [&](std::size_t c) { return log.spans[c].begin; });
    if (after != found->second.begin()) flows.push_back({*(after - 1), i});
  }
  return flows;
}

namespace {

/// Thread numbers of a process: computing from 0, communication from here.
constexpr int kCommunication = 1000;

int thread_of(const SpanLane& place) {
  return place.lane + (place.communication ? kCommunication : 0);
}

std::string thread_name(int thread) {
  const bool communication = thread >= kCommunication;
  const int lane = thread - (communication ? kCommunication : 0);
  const std::string name = communication ? "communication" : "compute";
  return lane == 0 ? name : fmt::format("{} {}", name, lane + 1);
}

/// Returns a JSON string literal. Invalid UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Formats nanoseconds as microseconds, without loss.
std::string microseconds(Duration duration) {
  const auto ns = duration.count();
  const auto size = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string metadata(Rank process, int thread, std::string_view what, const std::string& value) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", process, thread,
                     what, value);
}

std::string complete(const RankTrace& trace, const SpanLane& place, Time origin) {
  const auto& span = trace.log.spans[place.span];
  const auto bytes = span.bytes > 0 ? fmt::format(R"(,"bytes":{})", span.bytes) : "";
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{},"dur":{},)"
                     R"("args":{{"step":{}{}}}}})",
                     trace.rank, thread_of(place), json_text(trace.log.names[span.name]),
                     name_of(span.kind), microseconds(span.begin - origin),
                     microseconds(span.end - span.begin), span.step, bytes);
}

/// Counter event with one series per category, which viewers stack.
std::string counter(const RankTrace& trace, const MemorySample& sample, Time origin) {
  std::string bytes;
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    bytes +=
        fmt::format(R"({}"{}":{})", i == 0 ? "" : ",", kMemoryCategoryNames[i], sample.bytes[i]);
  }
  const auto since =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(sample.seconds));
  return fmt::format(R"({{"ph":"C","pid":{},"tid":0,"name":"memory","ts":{},"args":{{{}}}}})",
                     trace.rank, microseconds(trace.memory_begin + since - origin), bytes);
}

/// Start, step or end of an arrow; binds to the slice of that thread at that time.
std::string flow_point(const RankTrace& trace, char phase, std::size_t number, int thread,
                       Duration since_origin) {
  const auto id = (static_cast<std::uint64_t>(trace.rank) << 32) + number;
  const auto binding = phase == 's' ? "" : R"(,"bp":"e")";
  return fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"id":{},"name":"wait","cat":"flow",)"
                     R"("ts":{}{}}})",
                     phase, trace.rank, thread, id, microseconds(since_origin), binding);
}

/// Returns arrows from the launch of a communication, through its span, to the end of the wait for
/// it.
std::vector<std::string> arrows(const RankTrace& trace, const std::vector<SpanLane>& places,
                                Time origin) {
  std::vector<int> threads(trace.log.spans.size());
  for (const auto& place : places) threads[place.span] = thread_of(place);
  std::vector<std::string> points;
  const std::vector<TraceFlow> flows = flows_of(trace.log);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const auto& [communication, wait] = flows[i];
    const Duration launched = trace.log.spans[communication].begin - origin;
    const Duration over = trace.log.spans[wait].end - origin;
    points.push_back(flow_point(trace, 's', i, threads[wait], launched));
    points.push_back(flow_point(trace, 't', i, threads[communication], launched));
    points.push_back(flow_point(trace, 'f', i, threads[wait], over));
  }
  return points;
}

}  // namespace

ChromeTraceWriter::ChromeTraceWriter(Sink sink, Time origin)
    : sink_(std::move(sink)), origin_(origin) {
  sink_("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
}

void ChromeTraceWriter::event(std::string_view json) {
  sink_(first_ ? "\n" : ",\n");
  sink_(json);
  first_ = false;
}

void ChromeTraceWriter::add(const RankTrace& trace) {
  const auto process = fmt::format("rank {} on {}", trace.rank, trace.host);
  event(metadata(trace.rank, 0, "process_name", "\"name\":" + json_text(process)));
  event(metadata(trace.rank, 0, "process_labels",
                 fmt::format(R"("labels":"clock +-{} us")", microseconds(trace.clock.error()))));
  event(
      metadata(trace.rank, 0, "process_sort_index", fmt::format(R"("sort_index":{})", trace.rank)));
  const auto places = assign_lanes(trace.log.spans);
  std::set<int> threads;
  for (const auto& place : places) threads.insert(thread_of(place));
  for (const int thread : threads) {
    event(
        metadata(trace.rank, thread, "thread_name", "\"name\":" + json_text(thread_name(thread))));
    event(metadata(trace.rank, thread, "thread_sort_index",
                   fmt::format(R"("sort_index":{})", thread)));
  }
  for (const auto& place : places) event(complete(trace, place, origin_));
  for (const auto& point : arrows(trace, places, origin_)) event(point);
  for (const auto& sample : trace.memory.samples) event(counter(trace, sample, origin_));
}

void ChromeTraceWriter::finish() {
  sink_("\n]}\n");
}

}  // namespace gradwire

#include "gradwire/report/chrome_trace.h"

#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/report/trace_lanes.h"

namespace gradwire {
namespace {

/// Threads of a process are numbered: computing from 0, communication from here.
constexpr int kCommunication = 1000;

int thread_of(const TracePlace& place) {
  return place.lane + (place.communication ? kCommunication : 0);
}

std::string thread_name(int thread) {
  const bool communication = thread >= kCommunication;
  const int lane = thread - (communication ? kCommunication : 0);
  const std::string name = communication ? "communication" : "compute";
  return lane == 0 ? name : fmt::format("{} {}", name, lane + 1);
}

/// A text between quotes. What is not UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Nanoseconds as microseconds, none lost.
std::string microseconds(Duration duration) {
  const auto ns = duration.count();
  const auto size = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string metadata(Rank process, int thread, std::string_view what, const std::string& value) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", process, thread,
                     what, value);
}

std::string complete(const TraceOfRank& trace, const TracePlace& place, Time origin) {
  const auto& span = trace.log.spans[place.span];
  const auto bytes = span.bytes > 0 ? fmt::format(R"(,"bytes":{})", span.bytes) : "";
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{},"dur":{},)"
                     R"("args":{{"step":{}{}}}}})",
                     trace.rank, thread_of(place), json_text(trace.log.names[span.name]),
                     name_of(span.kind), microseconds(span.begin - origin),
                     microseconds(span.end - span.begin), span.step, bytes);
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

void ChromeTraceWriter::add(const TraceOfRank& trace) {
  const auto process = fmt::format("rank {} on {}", trace.rank, trace.host);
  event(metadata(trace.rank, 0, "process_name", "\"name\":" + json_text(process)));
  event(metadata(trace.rank, 0, "process_labels",
                 fmt::format(R"("labels":"clock +-{} us")", microseconds(trace.clock.error()))));
  event(
      metadata(trace.rank, 0, "process_sort_index", fmt::format(R"("sort_index":{})", trace.rank)));
  const auto places = lay_out(trace.log.spans);
  std::set<int> threads;
  for (const auto& place : places) threads.insert(thread_of(place));
  for (const int thread : threads) {
    event(
        metadata(trace.rank, thread, "thread_name", "\"name\":" + json_text(thread_name(thread))));
    event(metadata(trace.rank, thread, "thread_sort_index",
                   fmt::format(R"("sort_index":{})", thread)));
  }
  for (const auto& place : places) event(complete(trace, place, origin_));
}

void ChromeTraceWriter::finish() {
  sink_("\n]}\n");
}

}  // namespace gradwire

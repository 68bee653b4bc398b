#include "gradwire/trace/trace_rank.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/bytes.h"
#include "gradwire/base/clock.h"

namespace gradwire {
namespace {

using nlohmann::json;

constexpr auto kKinds = static_cast<std::uint8_t>(TraceKind::other) + 1;

std::int64_t count(Time time) {
  return time.time_since_epoch().count();
}

Time time_of(const json& value) {
  return Time(Duration(value.get<std::int64_t>()));
}

json to_json(const ClockReading& reading) {
  return {count(reading.at), reading.ahead.count(), reading.error.count()};
}

ClockReading reading_of(const json& value) {
  return {.at = time_of(value.at(0)),
          .ahead = Duration(value.at(1).get<std::int64_t>()),
          .error = Duration(value.at(2).get<std::int64_t>())};
}

json to_json(const TraceSpan& span) {
  return {static_cast<std::uint8_t>(span.kind),
          span.name,
          span.step,
          count(span.begin),
          count(span.end),
          span.bytes};
}

TraceSpan span_of(const json& value, std::size_t names) {
  const auto kind = value.at(0).get<std::uint8_t>();
  const TraceSpan span{.kind = static_cast<TraceKind>(kind),
                       .name = value.at(1).get<std::uint32_t>(),
                       .step = value.at(2).get<std::int64_t>(),
                       .begin = time_of(value.at(3)),
                       .end = time_of(value.at(4)),
                       .bytes = value.at(5).get<std::uint64_t>()};
  if (kind >= kKinds || span.name >= names || span.end < span.begin) {
    throw Exception(ErrorKind::corrupted, "a span is out of range");
  }
  return span;
}

json to_json(const MemorySample& sample) {
  return {sample.seconds, sample.step, sample.bytes};
}

MemorySample memory_of(const json& value) {
  return {.seconds = value.at(0).get<double>(),
          .step = value.at(1).get<std::int64_t>(),
          .bytes = value.at(2).get<MemoryBytes>()};
}

}  // namespace

RankTrace aligned(RankTrace trace) {
  const auto& clock = trace.clock;
  for (auto& span : trace.log.spans) {
    span.begin = clock.aligned(span.begin);
    span.end = clock.aligned(span.end);
  }
  if (trace.log.dropped > 0) trace.log.complete_since = clock.aligned(trace.log.complete_since);
  const auto memory_begin = clock.aligned(trace.memory_begin);
  for (auto& sample : trace.memory.samples) {
    const auto at = clock.aligned(trace.memory_begin + duration_of(sample.seconds));
    sample.seconds = std::chrono::duration<double>(at - memory_begin).count();
  }
  trace.memory_begin = memory_begin;
  for (auto* reading : {&trace.clock.first, &trace.clock.last}) {
    reading->at += std::exchange(reading->ahead, {});
  }
  return trace;
}

std::vector<std::byte> encode_trace(const RankTrace& trace) {
  auto spans = json::array();
  for (const auto& span : trace.log.spans) spans.push_back(to_json(span));
  auto memory = json::array();
  for (const auto& sample : trace.memory.samples) memory.push_back(to_json(sample));
  const json all = {{"rank", trace.rank},
                    {"host", trace.host},
                    {"first", to_json(trace.clock.first)},
                    {"last", to_json(trace.clock.last)},
                    {"names", trace.log.names},
                    {"dropped", trace.log.dropped},
                    {"whole_from", count(trace.log.complete_since)},
                    {"spans", std::move(spans)},
                    {"memory_begin", count(trace.memory_begin)},
                    {"memory", std::move(memory)}};
  const auto bytes = json::to_cbor(all);
  const auto* from = reinterpret_cast<const std::byte*>(bytes.data());
  return {from, from + bytes.size()};
}

Result<RankTrace> decode_trace(ConstBytes bytes) {
  try {
    const auto* from = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const auto all = json::from_cbor(from, from + bytes.size());
    RankTrace trace{
        .rank = all.at("rank").get<Rank>(),
        .host = all.at("host").get<std::string>(),
        .clock = {.first = reading_of(all.at("first")), .last = reading_of(all.at("last"))}};
    trace.log.names = all.at("names").get<std::vector<std::string>>();
    trace.log.dropped = all.at("dropped").get<std::uint64_t>();
    trace.log.complete_since = time_of(all.at("whole_from"));
    for (const auto& span : all.at("spans")) {
      trace.log.spans.push_back(span_of(span, trace.log.names.size()));
    }
    trace.memory_begin = time_of(all.at("memory_begin"));
    for (const auto& sample : all.at("memory")) {
      trace.memory.samples.push_back(memory_of(sample));
    }
    return trace;
  } catch (const std::exception& error) {
    return failure(ErrorKind::corrupted,
                   fmt::format("cannot decode the trace of a rank: {}", error.what()));
  }
}

}  // namespace gradwire

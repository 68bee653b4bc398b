#include "gradwire/trace/chrome_trace.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random.h"
#include "tests/support/manual_trace.h"

namespace gradwire {
namespace {

using nlohmann::json;
using test::at;
using test::ManualLog;
using ::testing::ElementsAre;

json written(const std::vector<RankTrace>& traces, Time origin = at(0)) {
  std::string text;
  ChromeTraceWriter writer([&text](std::string_view piece) { text += piece; }, origin);
  for (const auto& trace : traces) writer.add(trace);
  writer.finish();
  return json::parse(text);
}

std::vector<json> events(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(ChromeTrace, HasEverySpanInMicroseconds) {
  auto log = ManualLog()
                 .span(TraceKind::step, 10, 20, 4, 77)
                 .span(TraceKind::communication, 12, 15, 4, 4096)
                 .log;
  log.spans[1].end += Duration(120);
  const auto trace = written({{.rank = 2, .host = "h", .log = log}}, at(9));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  const auto spans = events(trace, "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0], json({{"ph", "X"},
                            {"pid", 2},
                            {"tid", 0},
                            {"name", "step"},
                            {"cat", "step"},
                            {"ts", 1000.0},
                            {"dur", 10000.0},
                            {"args", {{"step", 4}, {"bytes", 77}}}}));
  EXPECT_EQ(spans[1].at("name"), "bucket");
  EXPECT_EQ(spans[1].at("cat"), "communication");
  EXPECT_EQ(spans[1].at("ts"), 3000.0);
  EXPECT_EQ(spans[1].at("dur"), 3000.12) << "no nanosecond is lost";
}

TEST(ChromeTrace, NamesProcessesAndThreads) {
  const auto log = ManualLog()
                       .span(TraceKind::communication, 0, 5)
                       .span(TraceKind::communication, 2, 4)
                       .span(TraceKind::forward, 0, 5)
                       .log;
  const auto trace = written(
      {{.rank = 0, .host = "a", .log = log}, {.rank = 1, .host = "b\"\\\n\xff", .log = log}});
  std::map<std::string, std::vector<json>> names;
  for (const auto& event : events(trace, "M")) {
    names[event.at("name")].push_back(event.at("args").value("name", json()));
  }
  EXPECT_THAT(names["process_name"], ElementsAre("rank 0 on a", "rank 1 on b\"\\\n\uFFFD"));
  EXPECT_THAT(names["thread_name"], ElementsAre("compute", "communication", "communication 2",
                                                "compute", "communication", "communication 2"));
}

TEST(ChromeTrace, EmptyTraceIsValid) {
  EXPECT_TRUE(written({}).at("traceEvents").empty());
  EXPECT_EQ(events(written({{.rank = 0, .host = "a"}}), "X").size(), 0u);
}

TEST(ChromeTrace, LanesNeverHoldSpansThatCrossEachOther) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    ManualLog manual;
    for (int i = 0; i < 30; ++i) {
      const auto begin = random.between(0, 50);
      manual.span(static_cast<TraceKind>(random.below(8)), begin, begin + random.between(0, 20));
    }
    const auto& spans = manual.log.spans;
    const auto places = assign_lanes(spans);
    ASSERT_EQ(places.size(), spans.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto& outer = spans[places[i].span];
      EXPECT_EQ(places[i].communication, outer.kind == TraceKind::communication);
      for (std::size_t k = i + 1; k < places.size(); ++k) {
        const auto& inner = spans[places[k].span];
        EXPECT_LE(outer.begin, inner.begin) << seed;
        if (places[i].communication != places[k].communication) continue;
        if (places[i].lane != places[k].lane) continue;
        const bool apart = outer.end <= inner.begin;
        const bool nested = !places[i].communication && inner.end <= outer.end;
        EXPECT_TRUE(apart || nested) << seed;
      }
    }
  }
}

TEST(ChromeTrace, NestedSpansTakeOneLaneAndOverlapsAsFewAsNeeded) {
  const auto log = ManualLog()
                       .span(TraceKind::forward, 0, 10)
                       .span(TraceKind::step, 0, 30)
                       .span(TraceKind::backward, 10, 30)
                       .span(TraceKind::wait, 20, 30)
                       .span(TraceKind::communication, 0, 10)
                       .span(TraceKind::communication, 5, 15)
                       .span(TraceKind::communication, 10, 20)
                       .log;
  std::map<std::size_t, int> lane;
  for (const auto& place : assign_lanes(log.spans)) lane[place.span] = place.lane;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(lane[i], 0) << i;
  EXPECT_EQ(lane[4], 0);
  EXPECT_EQ(lane[5], 1);
  EXPECT_EQ(lane[6], 0);
}

TEST(RankTrace, RoundTrips) {
  RankTrace trace{.rank = 3,
                  .host = "host-c",
                  .clock = {.first = {at(1), Duration(-5), Duration(2)},
                            .last = {at(9), Duration(7), Duration(1)}},
                  .log = ManualLog().span(TraceKind::wait, 2, 8, -1, 1ull << 63).log};
  trace.log.dropped = 12;
  trace.log.complete_since = at(-4);
  const auto got = value_or_throw(decode_trace(encode_trace(trace)));
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.host, "host-c");
  EXPECT_EQ(got.clock.first.ahead, Duration(-5));
  EXPECT_EQ(got.clock.last.at, at(9));
  EXPECT_EQ(got.clock.last.error, Duration(1));
  EXPECT_EQ(got.log.names, trace.log.names);
  EXPECT_EQ(got.log.dropped, 12u);
  EXPECT_EQ(got.log.complete_since, at(-4));
  ASSERT_EQ(got.log.spans.size(), 1u);
  EXPECT_EQ(got.log.spans[0].kind, TraceKind::wait);
  EXPECT_EQ(got.log.spans[0].step, -1);
  EXPECT_EQ(got.log.spans[0].begin, at(2));
  EXPECT_EQ(got.log.spans[0].bytes, 1ull << 63);
}

TEST(RankTrace, DamagedDataIsAnError) {
  const auto whole =
      encode_trace({.host = "a", .log = ManualLog().span(TraceKind::step, 0, 1).log});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto got = decode_trace(ConstBytes(whole).first(size));
    ASSERT_FALSE(got) << size;
    EXPECT_EQ(got.error().kind, ErrorKind::corrupted);
  }
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    auto bytes = whole;
    bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    const auto got = decode_trace(bytes);  // An error, or a trace that can be written.
    if (got) written({*got});
  }
}

TEST(RankTrace, NamesAndKindsThatDoNotExistAreErrors) {
  RankTrace trace{.host = "a", .log = ManualLog().span(TraceKind::other, 0, 1).log};
  auto& span = trace.log.spans[0];
  EXPECT_TRUE(decode_trace(encode_trace(trace)));
  span.name = static_cast<std::uint32_t>(trace.log.names.size());
  EXPECT_FALSE(decode_trace(encode_trace(trace)));
  span.name = 0;
  span.kind = static_cast<TraceKind>(8);
  EXPECT_FALSE(decode_trace(encode_trace(trace)));
  span.kind = TraceKind::step;
  span.end = at(-1);
  EXPECT_FALSE(decode_trace(encode_trace(trace)));
}

TEST(RankTrace, AlignedIsOnTheReferencesClock) {
  const RankTrace trace{.clock = {.first = {at(0), std::chrono::seconds(5), Duration(3)},
                                  .last = {at(10), std::chrono::seconds(5), Duration(4)}},
                        .log = ManualLog().span(TraceKind::step, 2, 8).log};
  const auto got = aligned(aligned(trace));
  EXPECT_EQ(got.log.spans.at(0).begin, at(5002));
  EXPECT_EQ(got.log.spans.at(0).end, at(5008));
  EXPECT_EQ(got.clock.error(), Duration(4));
}

}  // namespace
}  // namespace gradwire

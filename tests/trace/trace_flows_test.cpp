#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/trace/chrome_trace.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

TraceSpan span(TraceKind kind, std::uint32_t name, int begin_ms, int end_ms) {
  return {.kind = kind,
          .name = name,
          .step = 0,
          .begin = Time(milliseconds(begin_ms)),
          .end = Time(milliseconds(end_ms))};
}

/// Two steps of a bucket, of which the second is waited for, and a wait for an unknown operation.
TraceLog log_of_two_steps() {
  return {.names = {"bucket 1", "wait for bucket 1", "backward", "wait for bucket 2"},
          .spans = {span(TraceKind::communication, 0, 10, 20), span(TraceKind::backward, 2, 0, 30),
                    span(TraceKind::communication, 0, 35, 50), span(TraceKind::wait, 1, 40, 50),
                    span(TraceKind::wait, 3, 50, 60), span(TraceKind::backward, 2, 30, 60),
                    span(TraceKind::communication, 0, 70, 80)}};
}

TEST(TraceFlows, LeadToTheWaitForTheLastOne) {
  const std::vector<TraceFlow> flows = flows_of(log_of_two_steps());
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].communication, 2u);
  EXPECT_EQ(flows[0].wait, 3u);
}

TEST(TraceFlows, AreArrowsInAChromeTrace) {
  std::string text;
  ChromeTraceWriter writer([&](std::string_view piece) { text += piece; }, Time());
  RankTrace trace;
  trace.rank = 3;
  trace.log = log_of_two_steps();
  writer.add(trace);
  writer.finish();
  std::string phases;
  std::vector<double> times;
  const auto object = nlohmann::json::parse(text);
  for (const auto& event : object["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase != "s" && phase != "t" && phase != "f") continue;
    phases += phase;
    times.push_back(event["ts"]);
    EXPECT_EQ(event["pid"], 3);
    EXPECT_EQ(event["id"], 3LL << 32);
    EXPECT_EQ(event["tid"].get<int>() >= 1000, phase == "t") << "only the bucket communicates";
  }
  EXPECT_EQ(phases, "stf");
  EXPECT_EQ(times, (std::vector<double>{35'000, 35'000, 50'000}));
}

}  // namespace
}  // namespace gradwire

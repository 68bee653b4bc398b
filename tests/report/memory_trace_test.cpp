#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/report/training_summary.h"
#include "gradwire/trace/chrome_trace.h"
#include "tests/support/manual_trace.h"

namespace gradwire::report {
namespace {

using nlohmann::json;
using test::at;
using test::ManualLog;

RankTrace trace_with_memory() {
  return {.rank = 3,
          .host = "h",
          .log = ManualLog().span(TraceKind::step, 1, 5).log,
          .memory = {.samples = {{.seconds = 0.001, .step = -1, .bytes = {1, 2, 3, 4, 5, 6}},
                                 {.seconds = 0.002, .step = 7, .bytes = {10, 0, 0, 0, 0, 0}}},
                     .peak_bytes = 21},
          .memory_begin = at(2)};
}

TEST(MemoryInATrace, IsACounterOfEachRank) {
  std::string text;
  ChromeTraceWriter writer([&text](std::string_view piece) { text += piece; }, at(1));
  writer.add(trace_with_memory());
  writer.finish();
  std::vector<json> counters;
  const auto trace = json::parse(text);
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "C") counters.push_back(event);
  }
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0], json({{"ph", "C"},
                               {"pid", 3},
                               {"tid", 0},
                               {"name", "memory"},
                               {"ts", 2000.0},
                               {"args",
                                {{"parameters", 1},
                                 {"gradients", 2},
                                 {"optimiser", 3},
                                 {"activations", 4},
                                 {"communication", 5},
                                 {"other", 6}}}}));
  EXPECT_EQ(counters[1].at("ts"), 3000.0);
}

TEST(MemoryInATrace, TravelsToTheRankThatWrites) {
  const auto got = value_or_throw(decode_trace(encode_trace(trace_with_memory())));
  EXPECT_EQ(got.memory_begin, at(2));
  ASSERT_EQ(got.memory.samples.size(), 2u);
  EXPECT_EQ(got.memory.samples[1].seconds, 0.002);
  EXPECT_EQ(got.memory.samples[1].step, 7);
  EXPECT_EQ(got.memory.samples[0].bytes, (MemoryBytes{1, 2, 3, 4, 5, 6}));
}

TEST(MemoryInATrace, IsOnTheReferencesClock) {
  auto trace = trace_with_memory();
  trace.clock.first = {.at = at(0), .ahead = at(4) - at(0)};
  trace.clock.last = {.at = at(10), .ahead = at(4) - at(0)};
  const auto moved = aligned(trace);
  EXPECT_EQ(moved.memory_begin - trace.memory_begin,
            moved.log.spans[0].begin - trace.log.spans[0].begin);
  EXPECT_NEAR(moved.memory.samples[1].seconds, 0.002, 1e-9);
}

TEST(MemoryInASummary, IsByCategory) {
  TrainingSummary summary;
  EXPECT_FALSE(json::parse(summary_json(summary)).contains("memory")) << "not measured";
  summary.memory = {
      .bytes = 21, .at_peak = {1, 2, 3, 4, 5, 6}, .max = {7, 0, 0, 0, 0, 0}, .resident = 99};
  const auto written = json::parse(summary_json(summary));
  EXPECT_EQ(written.at("resident_peak_bytes"), 99);
  EXPECT_EQ(written.at("memory").at("peak_bytes"), 21);
  EXPECT_EQ(written.at("memory").at("at_peak").at("activations"), 4);
  EXPECT_EQ(written.at("memory").at("most").at("parameters"), 7);
}

}  // namespace
}  // namespace gradwire::report

#include "gradwire/trace/trace.h"

#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/manual_trace.h"

namespace gradwire {
namespace {

using test::at;
using test::ManualClock;

struct Recorder : ::testing::Test {
  ManualClock clock;
};

TEST_F(Recorder, RecordsScopes) {
  TraceRecorder recorder(clock);
  {
    TraceStep step(&recorder, 7);
    step.set_bytes(5);
    clock.ms = 1;
    {
      TraceScope scope(&recorder, TraceKind::forward, "conv1");
      clock.ms = 3;
    }
    { const TraceScope scope(&recorder, TraceKind::data); }
    clock.ms = 4;
  }
  const auto log = recorder.log();
  ASSERT_EQ(log.spans.size(), 3u);
  EXPECT_EQ(log.spans[0].kind, TraceKind::forward);
  EXPECT_EQ(log.names[log.spans[0].name], "conv1");
  EXPECT_EQ(log.spans[0].step, 7);
  EXPECT_EQ(log.spans[0].begin, at(1));
  EXPECT_EQ(log.spans[0].end, at(3));
  EXPECT_EQ(log.names[log.spans[1].name], "data") << "without a name, that of the kind";
  EXPECT_EQ(log.spans[2].kind, TraceKind::step);
  EXPECT_EQ(log.spans[2].bytes, 5u);
  EXPECT_EQ(log.spans[2].begin, at(0));
  EXPECT_EQ(log.dropped, 0u);
}

TEST_F(Recorder, NullRecordsNothing) {
  TraceStep step(nullptr, 1);
  TraceScope scope(nullptr, TraceKind::data);
  step.set_bytes(1);
  scope.set_bytes(1);
}

TEST_F(Recorder, AStepKeepsItsNumberThoughTheNextHasBegun) {
  TraceRecorder recorder(clock);
  {
    const TraceStep step(&recorder, 1);
    recorder.begin_step(2);
  }
  EXPECT_EQ(recorder.log().spans.at(0).step, 1);
}

TEST_F(Recorder, KeepsTheNewestAndSaysSinceWhenNoneIsMissing) {
  TraceRecorder recorder(clock, 3);
  recorder.record(TraceKind::other, "a", 0, at(0), at(9));
  for (int i = 0; i < 4; ++i) recorder.record(TraceKind::other, "b", i, at(i), at(i + 1));
  const auto log = recorder.log();
  ASSERT_EQ(log.spans.size(), 3u);
  EXPECT_EQ(log.dropped, 2u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(log.spans[static_cast<std::size_t>(i)].step, i + 1);
  EXPECT_EQ(log.complete_since, at(9)) << "the end of the longest that is gone";
}

TEST_F(Recorder, ASpanNeverEndsBeforeItBegins) {
  TraceRecorder recorder(clock);
  recorder.record(TraceKind::other, "a", 0, at(5), at(3));
  EXPECT_EQ(recorder.log().spans.at(0).end, at(5));
}

TEST_F(Recorder, NamesAreBounded) {
  TraceRecorder recorder(clock);
  for (std::size_t i = 0; i < TraceRecorder::kMaxNames + 10; ++i) {
    recorder.record(TraceKind::other, fmt::format("name {}", i), 0, at(0), at(1));
  }
  const auto log = recorder.log();
  EXPECT_EQ(log.names.size(), TraceRecorder::kMaxNames);
  EXPECT_EQ(log.names[log.spans.front().name], "name 0");
  EXPECT_EQ(log.names[log.spans.back().name], "...");
}

TEST_F(Recorder, TakesSpansOfSeveralThreads) {
  TraceRecorder recorder(clock, 1000);
  const auto work = [&recorder] {
    for (int i = 0; i < 400; ++i) {
      const TraceScope scope(&recorder, TraceKind::data);
    }
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  EXPECT_EQ(recorder.log().spans.size(), 800u);
}

}  // namespace
}  // namespace gradwire

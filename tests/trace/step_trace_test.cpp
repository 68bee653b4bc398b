#include "gradwire/trace/step_trace.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/support/manual_trace.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using test::at;
using test::ManualLog;

TEST(StepTrace, PartsOfAStepWhoseCommunicationIsPartlyHidden) {
  const auto steps = break_down(ManualLog()
                                    .span(TraceKind::data, 0, 5)
                                    .span(TraceKind::forward, 5, 25)
                                    .span(TraceKind::communication, 35, 50)
                                    .span(TraceKind::communication, 40, 70)
                                    .span(TraceKind::wait, 60, 70)
                                    .span(TraceKind::backward, 25, 70)
                                    .span(TraceKind::optimizer, 70, 78)
                                    .span(TraceKind::step, 0, 80, 3, 1234)
                                    .log);
  ASSERT_EQ(steps.size(), 1u);
  const auto& step = steps[0];
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.bytes, 1234u);
  EXPECT_EQ(step.total, milliseconds(80));
  EXPECT_EQ(step.data, milliseconds(5));
  EXPECT_EQ(step.forward, milliseconds(20));
  EXPECT_EQ(step.backward, milliseconds(35)) << "without the wait inside";
  EXPECT_EQ(step.optimizer, milliseconds(8));
  EXPECT_EQ(step.exposed, milliseconds(10));
  EXPECT_EQ(step.other, milliseconds(2));
  EXPECT_EQ(step.hidden, milliseconds(25)) << "35 .. 60";
  EXPECT_EQ(step.communication(), milliseconds(35)) << "overlaps count once";
  EXPECT_EQ(step.busy(), milliseconds(70));
}

TEST(StepTrace, CommunicationThatTheNextStepHidesIsOfTheNextStep) {
  const auto steps = break_down(ManualLog()
                                    .span(TraceKind::backward, 0, 40)
                                    .span(TraceKind::step, 0, 40, 0)
                                    .span(TraceKind::communication, 30, 60, 0)
                                    .span(TraceKind::wait, 55, 60, 1)
                                    .span(TraceKind::forward, 40, 80, 1)
                                    .span(TraceKind::step, 40, 80, 1)
                                    .log);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].hidden, milliseconds(10));
  EXPECT_EQ(steps[0].exposed, milliseconds(0));
  EXPECT_EQ(steps[1].hidden, milliseconds(15));
  EXPECT_EQ(steps[1].exposed, milliseconds(5));
  EXPECT_EQ(steps[1].forward, milliseconds(35));
}

TEST(StepTrace, ComputationInsideAWaitIsNotExposed) {
  const auto steps = break_down(ManualLog()
                                    .span(TraceKind::optimizer, 20, 30)
                                    .span(TraceKind::communication, 10, 40)
                                    .span(TraceKind::wait, 10, 40)
                                    .span(TraceKind::step, 0, 50)
                                    .log);
  EXPECT_EQ(steps.at(0).exposed, milliseconds(20));
  EXPECT_EQ(steps.at(0).optimizer, milliseconds(10));
  EXPECT_EQ(steps.at(0).hidden, milliseconds(10));
}

TEST(StepTrace, WaitingForRanksThatHaveNotBegunIsCommunicationToo) {
  const auto steps =
      break_down(ManualLog().span(TraceKind::wait, 10, 40).span(TraceKind::step, 0, 50).log);
  EXPECT_EQ(steps.at(0).exposed, milliseconds(30));
  EXPECT_EQ(steps.at(0).communication(), milliseconds(30));
}

TEST(StepTrace, StepsOfWhichSomethingMayBeMissingAreLeftOut) {
  ManualLog manual;
  manual.span(TraceKind::step, 0, 10, 0).span(TraceKind::step, 10, 20, 1);
  manual.log.dropped = 1;
  manual.log.complete_since = at(5);
  const auto steps = break_down(manual.log);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 1);
}

TEST(StepTrace, EmptyTraceHasNoSteps) {
  EXPECT_TRUE(break_down({}).empty());
  EXPECT_EQ(medians_of({}).total, 0);
}

TEST(StepTrace, Medians) {
  ManualLog manual;
  for (const int length : {10, 30, 20}) {
    const int begin = 100 * length;
    manual.span(TraceKind::forward, begin, begin + length / 2);
    manual.span(TraceKind::step, begin, begin + length);
  }
  const auto medians = medians_of(break_down(manual.log));
  EXPECT_DOUBLE_EQ(medians.total, 0.020);
  EXPECT_DOUBLE_EQ(medians.forward, 0.010);
  EXPECT_DOUBLE_EQ(medians.other, 0.010);
  EXPECT_DOUBLE_EQ(medians.busy, 0.020);
}

/// The definition, evaluated per millisecond.
struct Slow {
  explicit Slow(const TraceLog& log, const TraceSpan& step) {
    for (auto now = step.begin; now < step.end; now += milliseconds(1)) {
      const TraceSpan* inner = nullptr;
      bool communicates = false;
      for (const auto& span : log.spans) {
        if (now < span.begin || now >= span.end) continue;
        if (span.kind == TraceKind::communication) {
          communicates = true;
        } else if (inner == nullptr || span.begin > inner->begin ||
                   (span.begin == inner->begin && span.end <= inner->end)) {
          inner = &span;
        }
      }
      const bool waits = inner->kind == TraceKind::wait;
      ++parts[static_cast<std::size_t>(inner->kind)];
      if (communicates && !waits) ++hidden;
      if (communicates || waits) ++communication;
    }
  }
  int part(TraceKind kind) const { return parts[static_cast<std::size_t>(kind)]; }

  std::vector<int> parts = std::vector<int>(8);
  int hidden = 0;
  int communication = 0;
};

/// Adds nested spans, as one thread records them: parts of [begin, end), some with inner parts.
/// Each starts later than its parent, so that the nesting is unambiguous.
void add_nested(ManualLog& manual, Random& random, std::int64_t begin, std::int64_t end,
                int depth) {
  while (depth > 0 && end - begin > 2) {
    const auto from = random.between(begin + 1, end - 1);
    const auto to = random.between(from, end);
    add_nested(manual, random, from, to, depth - 1);
    const auto kind = random.between(1, 6);
    manual.span(static_cast<TraceKind>(kind == 6 ? 7 : kind), from, to);
    begin = to;
  }
}

TEST(StepTrace, EqualsItsDefinitionOnRandomTimelines) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    ManualLog manual;
    std::int64_t begin = 0;
    for (int step = 0; step < 3; ++step) {
      const auto end = begin + random.between(1, 80);
      add_nested(manual, random, begin, end, 3);
      manual.span(TraceKind::step, begin, end, step);
      begin = end + random.between(0, 5);
    }
    for (int i = 0; i < 6; ++i) {
      const auto from = random.between(0, begin);
      manual.span(TraceKind::communication, from, from + random.between(0, 60));
    }
    std::vector<TraceSpan> spans;
    std::ranges::copy_if(manual.log.spans, std::back_inserter(spans),
                         [](const auto& span) { return span.kind == TraceKind::step; });
    const auto steps = break_down(manual.log);
    ASSERT_EQ(steps.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& step = steps[i];
      const Slow slow(manual.log, spans[i]);
      EXPECT_EQ(step.data, milliseconds(slow.part(TraceKind::data))) << seed;
      EXPECT_EQ(step.forward, milliseconds(slow.part(TraceKind::forward))) << seed;
      EXPECT_EQ(step.backward, milliseconds(slow.part(TraceKind::backward))) << seed;
      EXPECT_EQ(step.optimizer, milliseconds(slow.part(TraceKind::optimizer))) << seed;
      EXPECT_EQ(step.exposed, milliseconds(slow.part(TraceKind::wait))) << seed;
      EXPECT_EQ(step.hidden, milliseconds(slow.hidden)) << seed;
      EXPECT_EQ(step.communication(), milliseconds(slow.communication)) << seed;
      EXPECT_EQ(
          step.data + step.forward + step.backward + step.optimizer + step.exposed + step.other,
          step.total)
          << seed;
      EXPECT_GE(step.other, milliseconds(0)) << seed;
    }
  }
}

TEST(TraceIntervals, AgreeWithSetsOfMoments) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const auto draw = [&random] {
      TraceIntervals intervals;
      for (auto n = random.between(0, 6); n > 0; --n) {
        const auto begin = random.between(0, 40);
        intervals.push_back({at(begin), at(begin + random.between(0, 9))});
      }
      return intervals;
    };
    const auto has = [](const TraceIntervals& set, Time time) {
      return std::ranges::any_of(
          set, [time](const auto& part) { return part.begin <= time && time < part.end; });
    };
    const auto a = draw();
    const auto b = draw();
    const auto all = united(a);
    const auto rest = without(united(a), united(b));
    const TraceInterval window{at(random.between(0, 25)), at(random.between(25, 50))};
    Duration inside{};
    for (std::int64_t ms = 0; ms < 50; ++ms) {
      EXPECT_EQ(has(all, at(ms)), has(a, at(ms))) << seed;
      EXPECT_EQ(has(rest, at(ms)), has(a, at(ms)) && !has(b, at(ms))) << seed;
      const bool counted = window.begin <= at(ms) && at(ms) < window.end && has(a, at(ms));
      if (counted) inside += milliseconds(1);
    }
    EXPECT_EQ(length_within(all, window), inside) << seed;
    for (const auto& part : rest) EXPECT_LT(part.begin, part.end) << seed;
    for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1].end, all[i].begin) << seed;
  }
}

}  // namespace
}  // namespace gradwire

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/trace/trace_summary.h"

namespace gradwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A step in milliseconds.
StepMedians step(double data, double forward, double backward, double exposed, double hidden = 0) {
  const double busy = data + forward + backward;
  return {.total = (busy + exposed) / 1e3,
          .data = data / 1e3,
          .forward = forward / 1e3,
          .backward = backward / 1e3,
          .exposed = exposed / 1e3,
          .hidden = hidden / 1e3,
          .busy = busy / 1e3};
}

std::vector<RankMedians> ranks(const std::vector<StepMedians>& steps) {
  std::vector<RankMedians> all;
  for (const auto& medians : steps) {
    const auto rank = static_cast<Rank>(all.size());
    all.push_back(
        {.rank = rank, .host = "host-" + std::to_string(rank), .steps = 9, .step = medians});
  }
  return all;
}

TEST(Bottleneck, CommunicationThatComputingCannotHide) {
  const auto one = step(0, 20, 40, 60, 40);
  const auto found = bottleneck(ranks({one, one, one}));
  EXPECT_EQ(found.cause, BottleneckCause::communication);
  EXPECT_DOUBLE_EQ(found.share, 0.5);
  EXPECT_THAT(found.text, AllOf(HasSubstr("communication: 50 %"), HasSubstr("100 ms"),
                                HasSubstr("1.7x"), HasSubstr("int8"), HasSubstr("accumulate 2")));
}

TEST(Bottleneck, CommunicationThatWouldFitBehindComputing) {
  const auto one = step(0, 20, 40, 40, 0);
  const auto found = bottleneck(ranks({one, one}));
  EXPECT_EQ(found.cause, BottleneckCause::communication);
  EXPECT_THAT(found.text, AllOf(HasSubstr("40 %"), HasSubstr("overlap"), Not(HasSubstr("int8"))));
}

TEST(Bottleneck, Data) {
  const auto one = step(30, 20, 40, 10);
  const auto found = bottleneck(ranks({one, one}));
  EXPECT_EQ(found.cause, BottleneckCause::data);
  EXPECT_DOUBLE_EQ(found.share, 0.3);
  EXPECT_THAT(found.text, AllOf(HasSubstr("data: 30 %"), HasSubstr("prefetch")));
}

TEST(Bottleneck, Compute) {
  const auto one = step(1, 30, 65, 4, 50);
  const auto found = bottleneck(ranks({one, one}));
  EXPECT_EQ(found.cause, BottleneckCause::compute);
  EXPECT_DOUBLE_EQ(found.share, 0.95);
  EXPECT_THAT(found.text, AllOf(HasSubstr("compute: 95 %"), HasSubstr("forward 30 %"),
                                HasSubstr("backward 65 %")));
  EXPECT_THAT(bottleneck(ranks({one})).text, HasSubstr("more ranks"));
}

TEST(Bottleneck, AStragglerIsNotTheNetworksFault) {
  const auto usual = step(0, 20, 40, 28);
  const auto found = bottleneck(ranks({usual, usual, step(0, 20, 64, 4), usual}));
  EXPECT_EQ(found.cause, BottleneckCause::straggler);
  EXPECT_NEAR(found.share, 24.0 / 88, 1e-9);
  EXPECT_THAT(found.text, AllOf(HasSubstr("rank 2 on host-2 is 1.4x slower"), HasSubstr("24 ms"),
                                HasSubstr("backward")));
}

TEST(Bottleneck, SlowerOfTwoRanksIsAStragglerToo) {
  const auto found = bottleneck(ranks({step(0, 20, 40, 30), step(30, 20, 40, 0)}));
  EXPECT_EQ(found.cause, BottleneckCause::straggler);
  EXPECT_THAT(found.text, AllOf(HasSubstr("rank 1"), HasSubstr("in data")));
}

TEST(Bottleneck, ANetworkSlowerThanTheSlowestRankIsCommunication) {
  const auto found = bottleneck(ranks({step(0, 20, 40, 100), step(0, 20, 55, 85)}));
  EXPECT_EQ(found.cause, BottleneckCause::communication);
}

TEST(Bottleneck, WithoutStepsThereIsNone) {
  EXPECT_EQ(bottleneck({}).cause, BottleneckCause::none);
  EXPECT_EQ(bottleneck({{.rank = 0}}).cause, BottleneckCause::none);
  auto some = ranks({step(0, 10, 10, 0), {}});
  some[1].steps = 0;
  EXPECT_EQ(bottleneck(some).cause, BottleneckCause::compute) << "a rank without steps has no say";
}

TEST(Bottleneck, TheSlowestRank) {
  const auto found =
      slowest_of(ranks({step(0, 10, 10, 0), step(0, 10, 30, 0), step(0, 10, 15, 0)}));
  EXPECT_EQ(found.index, 1u);
  EXPECT_DOUBLE_EQ(found.others, 0.0225);
  EXPECT_DOUBLE_EQ(found.excess, 0.0175);
  EXPECT_EQ(slowest_of(ranks({step(0, 1, 1, 0)})).excess, 0);
}

TEST(TraceSummary, SaysWhereAStepGoes) {
  auto slow = step(0, 20, 40, 100, 30);
  slow.bytes = 3 << 20;
  const auto text = format_trace_summary({.file = "out/trace.json",
                                          .ranks = ranks({slow, slow, step(0, 20, 44, 96, 30)}),
                                          .spans = 321,
                                          .dropped = 5,
                                          .clock_error = std::chrono::microseconds(50)});
  for (const auto* part :
       {"Trace of 9 steps on 3 ranks: 160.00 ms a step", "forward", "20.00 ms  12.5 %", "waiting",
        "100.00 ms  62.5 %", "130.00 ms: 30.00 hidden behind computing, 100.00 exposed",
        "3 MiB sent", "slowest rank", "2 on host-2: busy for 64.00 ms a step, the others for 60.00",
        "bottleneck           communication: 62 %", "out/trace.json (321 spans",
        "5 older ones dropped", "within 50 us", "ui.perfetto.dev"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(TraceSummary, RanksThatDoNotWaitForEachOtherHaveNoBottleneck) {
  const auto text = format_trace_summary(
      {.file = "t", .ranks = ranks({step(0, 20, 40, 0), step(0, 80, 160, 0)}), .in_step = false});
  EXPECT_THAT(text, AllOf(HasSubstr("slowest rank"), Not(HasSubstr("bottleneck"))));
}

TEST(TraceSummary, OneRankHasNoCommunication) {
  EXPECT_THAT(format_trace_summary({.file = "t", .ranks = ranks({step(0, 20, 40, 0)})}),
              AllOf(Not(HasSubstr("slowest")), Not(HasSubstr("hidden")),
                    HasSubstr("compute: 100 %"), HasSubstr("9 steps on 1 rank:")));
}

}  // namespace
}  // namespace gradwire

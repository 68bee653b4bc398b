#include "gradwire/pipeline/simulation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/pipeline/drawing.h"
#include "tests/pipeline/schedules.h"

namespace gradwire::pipeline {
namespace {

using ::testing::DoubleNear;

constexpr double kForward = 1, kBackward = 2;  // F = I = W = 1.

Timeline run(std::string_view name, int p, int m, double c, int steps = 1) {
  const PipelineOptions options = options_of(p, m, c);
  return simulate(made(name, options), options.costs, steps);
}

double seconds(std::string_view name, int p, int m, double c) {
  return run(name, p, m, c).step_seconds;
}

/// Idle time in percent.
double bubble(std::string_view name, int p, int m, double c) {
  return 100 * run(name, p, m, c).bubble;
}

TEST(PipelineSimulation, TakesTheTimesOfTheFormulas) {
  for (const int p : {2, 4, 8}) {
    for (const int m : {p, 2 * p, 4 * p, 8 * p}) {
      const double compute = m * (kForward + kBackward);
      for (const double c : {0.0, 0.25, 0.5, 1.0}) {
        const double fill = (p - 1) * (kForward + kBackward + 2 * c);
        EXPECT_NEAR(seconds("gpipe", p, m, c), compute + fill, 1e-9) << p << ' ' << m << ' ' << c;
        EXPECT_NEAR(seconds("1f1b", p, m, c), compute + fill, 1e-9) << p << ' ' << m << ' ' << c;
      }
      EXPECT_NEAR(seconds("zero_bubble_h1", p, m, 0), compute + (p - 1), 1e-9) << p << ' ' << m;
      EXPECT_NEAR(seconds("interleaved", p, m, 0), 2 * compute + (p - 1) * (kForward + kBackward),
                  1e-9)
          << p << ' ' << m;  // Two stages per rank: twice the work of one, the same idle time.
    }
  }
}

/// 1F1B with the paper's warm-up on a network: a micro-batch takes F + B + 2c (p-1)/p.
TEST(PipelineSimulation, ChargesTransfersToTheUsualWarmUp) {
  PipelineOptions options = options_of(4, 16);
  const PipelineSchedule usual = made("1f1b", options);
  options.costs.transfer = 0.5;
  EXPECT_THAT(100 * simulate(usual, options.costs).bubble, DoubleNear(32.4, 0.5));
  EXPECT_THAT(bubble("1f1b", 4, 16, 0.5), DoubleNear(20.0, 0.1));
  PipelineSchedule blocking = usual;
  blocking.sends_in_flight = 0;
  EXPECT_THAT(100 * simulate(blocking, options.costs).bubble, DoubleNear(35.6, 0.5));
}

TEST(PipelineSimulation, ZeroBubbleFillsTheIdleTime) {
  EXPECT_LE(bubble("zero_bubble", 4, 16, 0), 6.0);
  EXPECT_LE(bubble("zero_bubble", 4, 16, 0.5), 9.0);
  // Without a barrier the next step fills the rest.
  EXPECT_LE(100 * run("zero_bubble", 4, 16, 0, 8).bubble, 0.1);
  EXPECT_LE(100 * run("zero_bubble", 4, 16, 0.5, 8).bubble, 4.1);
}

TEST(PipelineSimulation, ABarrierSeparatesSteps) {
  PipelineSchedule schedule = made("zero_bubble", options_of(4, 8));
  const double alone = simulate(schedule, {}).step_seconds;
  schedule.barrier = true;
  EXPECT_NEAR(simulate(schedule, {}, 5).step_seconds, alone, 1e-9);
  schedule.barrier = false;
  EXPECT_LT(simulate(schedule, {}, 5).step_seconds, alone - 1);
}

TEST(PipelineSimulation, ASlowLinkBoundsTheStep) {
  for (const std::string_view name : {"gpipe", "1f1b", "zero_bubble"}) {
    EXPECT_GE(seconds(name, 4, 16, 10), 16 * 10) << name;
  }
}

TEST(PipelineSimulation, LinksMayDiffer) {
  constexpr int kRanks = 4, kMicroBatches = 16;
  PipelineOptions options = options_of(kRanks, kMicroBatches, 0);
  options.costs.transfers = {0.5, 0, 1};
  const double compute = (kMicroBatches + kRanks - 1) * (kForward + kBackward);
  EXPECT_NEAR(simulate(made("gpipe", options), options.costs).step_seconds, compute + 2 * 1.5,
              1e-9);
  // The warm-up covers the round trips of each link: 2, 1 and 2 forwards.
  const PipelineSchedule one = made("1f1b", options);
  EXPECT_THAT(kept_by_rank(one), ::testing::ElementsAre(6, 4, 3, 1));
  EXPECT_NEAR(simulate(one, options.costs).step_seconds, compute + 2 * 1.5, 1e-9);
  options.costs.transfers = {0, 5, 0};  // Longer than F + B, each direction apart.
  const double bound = kMicroBatches * 5;
  EXPECT_NEAR(simulate(made("zero_bubble:16", options), options.costs, 8).step_seconds, bound,
              0.2 * bound);
}

TEST(PipelineSimulation, TheSlowestStageBoundsTheStep) {
  PipelineOptions options = options_of(3, 30);
  options.costs.stages = {{1, 1, 1}, {2, 2, 2}, {1, 1, 1}};
  const double step = simulate(made("1f1b", options), options.costs).step_seconds;
  EXPECT_GE(step, 30 * 6);
  EXPECT_LE(step, 30 * 6 + 2 * 6);
}

TEST(PipelineSimulation, DrawsOneLinePerRank) {
  const PipelineOptions options = options_of(2, 2);
  const PipelineSchedule schedule = made("1f1b", options);
  EXPECT_EQ(draw_text(schedule, simulate(schedule, options.costs)),
            "rank 0   F0 F1 ......B0    ...B1\n"
            "rank 1   ...F0 B0    F1 B1\n");
}

TEST(PipelineSimulation, DrawsABoxPerComputation) {
  const PipelineOptions options = options_of(2, 3);
  PipelineSchedule schedule = made("zero_bubble", options);
  const std::string svg = draw_svg(schedule, simulate(schedule, options.costs));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  for (const auto& order : schedule.order) {
    for (const Task& task : order) {
      EXPECT_THAT(svg, ::testing::HasSubstr("<title>" + name_of(task) + ",")) << name_of(task);
    }
  }
  EXPECT_THAT(svg, ::testing::HasSubstr("gradients of weights"));
  EXPECT_THAT(svg, ::testing::Not(::testing::HasSubstr(">backward<")));
  schedule.name = "<a&b>.csv";
  EXPECT_THAT(draw_svg(schedule, simulate(schedule, options.costs)),
              ::testing::HasSubstr(">&lt;a&amp;b&gt;.csv: 3 micro-batches"));
}

/// Seconds of a micro-batch of a schedule that never drains.
double micro_batch_seconds(std::string_view name, int p, double c) {
  constexpr int kMicroBatches = 16;
  return run(name, p, kMicroBatches, c, 32).step_seconds / kMicroBatches;
}

TEST(PipelineSimulation, AsynchronousPipelinesHaveNoIdleTime) {
  const double compute = kForward + kBackward;
  for (const int p : {2, 4, 8}) {
    for (const std::string_view name : {"pipedream", "2bw"}) {
      EXPECT_NEAR(micro_batch_seconds(name, p, 0), compute, 1e-9) << name << ' ' << p;
    }
    // Enough micro-batches are under way to hide the transfers, or to reach the bound of the link.
    EXPECT_NEAR(micro_batch_seconds(fmt::format("pipedream:{}", 2 * p - 1), p, 0.5), compute, 0.01);
    EXPECT_NEAR(micro_batch_seconds(fmt::format("pipedream:{}", 8 * p), p, 5), 5, 0.05);
    EXPECT_NEAR(micro_batch_seconds("2bw", p, 0.5), compute, 0.01);
    // The paper's p of them do not cover the round trip.
    EXPECT_NEAR(micro_batch_seconds("pipedream", p, 0.5), compute + 2 * 0.5 * (p - 1) / p, 0.01);
  }
}

}  // namespace
}  // namespace gradwire::pipeline

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/pipeline/verifier.h"
#include "tests/pipeline/schedules.h"

namespace gradwire::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string fault_of(const PipelineSchedule& schedule) {
  const auto found = find_fault(schedule);
  return found ? std::string(name_of(found->fault)) + ": " + found->message : "";
}

TEST(PipelineGenerators, AreCorrectForAllSizes) {
  for (const Generator& generator : generators()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const int micro_batches : {1, 2, 3, 4, 7, 16, 24}) {
        for (const double transfer : {0.0, 0.3, 1.0, 3.0}) {
          const auto made =
              make_pipeline(generator.name, options_of(ranks, micro_batches, transfer));
          ASSERT_TRUE(made) << made.error().message;
          EXPECT_EQ(fault_of(*made), "")
              << generator.name << ' ' << ranks << ' ' << micro_batches << ' ' << transfer;
          EXPECT_EQ(fault_of(forwards_of(*made)), "")
              << generator.name << ' ' << ranks << ' ' << micro_batches << ' ' << transfer;
        }
      }
    }
  }
}

TEST(PipelineGenerators, WorkWithBlockingSendsOrASmallBuffer) {
  for (const std::string_view name : {"gpipe", "1f1b", "forward_only"}) {
    PipelineSchedule schedule = made(name, options_of(4, 8));
    schedule.receives_ahead = 1;
    EXPECT_EQ(fault_of(schedule), "") << name;
    schedule.sends_in_flight = 1;
    EXPECT_EQ(fault_of(schedule), "") << name;
  }
}

TEST(PipelineGenerators, KeepWhatTheirPapersSay) {
  EXPECT_THAT(kept_by_rank(made("gpipe", options_of(4, 16))), ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(kept_by_rank(made("1f1b", options_of(4, 16))), ElementsAre(4, 3, 2, 1));
  // 1 + (p-1-s) (1 + ceil(2c / (F+B))) for c = F/2.
  EXPECT_THAT(kept_by_rank(made("1f1b", options_of(4, 16, 0.5))), ElementsAre(7, 5, 3, 1));
  EXPECT_THAT(kept_by_rank(made("zero_bubble_h1", options_of(4, 16))), ElementsAre(4, 4, 4, 4));
  EXPECT_LE(std::ranges::max(kept_by_rank(made("zero_bubble", options_of(4, 16, 0.5)))), 8);
  EXPECT_THAT(kept_by_rank(made("pipedream", options_of(4, 16))), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(kept_by_rank(made("pipedream:8", options_of(4, 2))), ElementsAre(8, 6, 4, 1));
  EXPECT_THAT(kept_by_rank(made("2bw", options_of(4, 4))), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(kept_by_rank(made("2bw", options_of(4, 1))), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(kept_by_rank(made("2bw", options_of(4, 8, 0.5))), ElementsAre(7, 5, 3, 1));
  EXPECT_THAT(kept_by_rank(made("2bw", options_of(4, 4, 0.5))), ElementsAre(5, 4, 3, 1));
}

std::vector<std::pair<int, int>> bounds_of(std::string_view name, int micro_batches) {
  std::vector<std::pair<int, int>> all;
  for (const auto& [staleness, kept] : made(name, options_of(4, micro_batches)).weight_bounds) {
    all.emplace_back(staleness, kept);
  }
  return all;
}

TEST(PipelineGenerators, DeclareTheWeightsOfTheirPapers) {
  using Bounds = std::vector<std::pair<int, int>>;
  for (const int micro_batches : {1, 2, 8}) {
    EXPECT_EQ(bounds_of("pipedream", micro_batches), (Bounds{{3, 4}, {2, 3}, {1, 2}, {0, 1}}));
    EXPECT_EQ(bounds_of("2bw", micro_batches), (Bounds{{1, 2}, {1, 2}, {1, 2}, {1, 2}}));
  }
  EXPECT_THAT(bounds_of("1f1b", 8), ::testing::IsEmpty());
  // The rules for weights share pipedream's order.
  const PipelineSchedule stash = made("pipedream", options_of(4, 8));
  EXPECT_EQ(with_rule(stash, WeightRule::predict).weight_bounds[0], (WeightBounds{3, 2}));
  EXPECT_EQ(with_rule(stash, WeightRule::predict).weight_bounds[3], (WeightBounds{0, 2}));
  EXPECT_EQ(with_rule(stash, WeightRule::newest).weight_bounds[0], (WeightBounds{3, 1}));
  for (const WeightRule rule : {WeightRule::predict, WeightRule::newest}) {
    EXPECT_EQ(fault_of(with_rule(stash, rule)), "");
  }
}

TEST(PipelineGenerators, StagesThatTakeNoTimeAreStagesThatTakeEquallyLong) {
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    const PipelineOptions options{.ranks = 4, .micro_batches = 8};
    PipelineOptions timeless = options;
    timeless.costs.stages.assign(4, {0, 0, 0});
    const auto made = make_pipeline(schedule, timeless);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_FALSE(find_fault(*made));
    if (std::string_view(schedule) == "1f1b") {
      EXPECT_EQ(to_csv(*made), to_csv(*make_pipeline(schedule, options)));
    }
  }
}

TEST(PipelineGenerators, WriteAndReadPyTorchsCsv) {
  for (const Generator& generator : generators()) {
    const PipelineSchedule schedule = made(generator.name, options_of(4, 8));
    if (max_delay(schedule) > 0) continue;  // PyTorch drains the pipeline after each step.
    const auto read = from_csv(to_csv(schedule), schedule.name);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->order, schedule.order);
    EXPECT_EQ(read->rank_of, schedule.rank_of);
    EXPECT_EQ(read->trains, schedule.trains);
    EXPECT_EQ(fault_of(*read), "");
  }
  EXPECT_EQ(value_or_throw(to_torch_csv(made("1f1b", options_of(1, 2)))), "0F0,0B0,0F1,0B1\n");
  EXPECT_FALSE(to_torch_csv(made("pipedream", options_of(4, 8))));
  // The table has idle time, as PyTorch writes it.
  const auto idle = from_csv("0F0,0F1,,,0B0,0B1\n,1F0,1B0,1F1,1B1,\n", "torch");
  ASSERT_TRUE(idle) << idle.error().message;
  EXPECT_EQ(fault_of(*idle), "");
  EXPECT_EQ(idle->order[1].size(), 4u);
}

TEST(PipelineGenerators, RefuseBadInput) {
  const auto error = [](const auto& result) { return result ? "" : result.error().message; };
  EXPECT_THAT(error(make_pipeline("1f1", options_of(4, 8))), HasSubstr("did you mean \"1f1b\"?"));
  EXPECT_THAT(error(make_pipeline("gpipe", options_of(0, 8))), HasSubstr("0 ranks"));
  EXPECT_THAT(error(make_pipeline("interleaved:0", options_of(4, 8))),
              HasSubstr("expected a number above 0"));
  EXPECT_THAT(error(from_csv("0F0,0X1", "a")), HasSubstr("line 1: \"0X1\" is not a computation"));
  EXPECT_THAT(error(from_csv("0F0,\n2F0", "a")), HasSubstr("no rank has stage 1"));
  EXPECT_THAT(error(from_csv("", "a")), HasSubstr("line 1 has no computations"));
  EXPECT_THAT(error(from_csv("0F0\n,,\n1F0\n", "a")), HasSubstr("line 2 has no computations"));
  for (const char* cell : {"0F99999999999999", "0F2147483647", "0F65536", "4096F0", "0F", "F0"}) {
    EXPECT_THAT(error(from_csv(cell, "a")), HasSubstr("is not a computation")) << cell;
  }
  PipelineOptions options = options_of(4, 1 << 17);
  EXPECT_THAT(error(make_pipeline("gpipe", options)), HasSubstr("65536 micro-batches"));
  options = options_of(4000, 8);
  EXPECT_THAT(error(make_pipeline("interleaved:4000", options)),
              HasSubstr("fewer ranks or chunks"));
}

}  // namespace
}  // namespace gradwire::pipeline

// A rank that is lost in any phase of a pipeline ends all others, which say where they were.
#include <csignal>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;

/// Four processes, one of which is lost.
struct LostRank {
  std::string schedule = "1f1b";
  int replicas = 1;
  int zero_stage = 0;
  int lost = 1;
  std::string phase = "steady";
  int signal = SIGKILL;
};

std::string text_of(const LostRank& what) {
  return fmt::format("{}, {} replicas, ZeRO {}, rank {} lost in {}", what.schedule, what.replicas,
                     what.zero_stage, what.lost, what.phase);
}

/// Each survivor ends by itself, and names the lost rank, and its own stage and micro-batch, or the
/// update of its stage.
void expect_that_all_end(const LostRank& what) {
  constexpr int kProcesses = 4;
  const TemporaryFolder folder;
  Subprocesses survivors, lost;
  for (int rank = 0; rank < kProcesses; ++rank) {
    (rank == what.lost ? lost : survivors)
        .start({own_program().parent_path() / "lost_rank", std::to_string(rank),
                std::to_string(kProcesses), folder.path(), what.schedule,
                std::to_string(what.replicas), std::to_string(what.zero_stage),
                std::to_string(what.lost), what.phase, std::to_string(what.signal)});
  }
  for (const Finished& each : survivors.wait()) {
    SCOPED_TRACE(fmt::format("{}: a survivor said: {}", text_of(what), each.output));
    EXPECT_EQ(each.status, 1);
    EXPECT_THAT(each.output,
                ContainsRegex("step [0-9]+, ([0-9]+[FBIW][0-9]+(-[0-9]+)?: .*micro-batch [0-9]+ "
                              ".*stage [0-9]+|the update of stage [0-9]+)"));
    EXPECT_THAT(each.output, ContainsRegex(fmt::format("rank {} \\(", what.lost)));
  }
  // A stopped rank is killed by the destructor.
  if (what.signal == SIGKILL) {
    EXPECT_EQ(lost.wait().front().status, 128 + SIGKILL);
  }
}

TEST(LostRank, EndsAPipelineInAnyPhase) {
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    for (const std::string phase : {"warm-up", "steady", "drain", "update", "clip"}) {
      expect_that_all_end({.schedule = schedule, .phase = phase});
    }
  }
}

TEST(LostRank, EndsReplicasOfAPipelineInAnyPhase) {
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    for (const std::string phase : {"warm-up", "steady", "drain", "update", "clip"}) {
      expect_that_all_end({.schedule = schedule, .replicas = 2, .lost = 2, .phase = phase});
    }
  }
}

TEST(LostRank, EndsShardedReplicasInAnyPhase) {
  for (const int zero_stage : {1, 3}) {
    for (const std::string phase : {"warm-up", "steady", "drain", "update", "clip"}) {
      expect_that_all_end(
          {.replicas = 2, .zero_stage = zero_stage, .lost = zero_stage, .phase = phase});
    }
  }
}

TEST(LostRank, EndsAnAsynchronousPipeline) {
  for (const std::string schedule : {"pipedream", "2bw"}) {
    for (const std::string phase : {"steady", "update"}) {
      for (const int replicas : {1, 2}) {
        expect_that_all_end(
            {.schedule = schedule, .replicas = replicas, .lost = 2, .phase = phase});
      }
    }
  }
}

TEST(LostRank, AtEitherEndOfThePipelineIsNamedToo) {
  for (const int lost : {0, 3}) expect_that_all_end({.schedule = "zero_bubble", .lost = lost});
}

TEST(LostRank, IsNoticedIfItFallsSilent) {
  expect_that_all_end({.lost = 2, .signal = SIGSTOP});
  expect_that_all_end({.replicas = 2, .lost = 2, .phase = "update", .signal = SIGSTOP});
}

}  // namespace
}  // namespace gradwire::test

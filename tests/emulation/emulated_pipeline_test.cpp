#include "gradwire/emulation/emulated_pipeline.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/pipeline/catalogue.h"
#include "tests/support/local_job.h"

namespace gradwire::emulation {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr pipeline::StageCosts kCompute{4e-3, 4e-3, 4e-3};

pipeline::PipelineSchedule schedule_of(const std::string& name, int ranks, int micro_batches) {
  return value_or_throw(
      pipeline::make_pipeline(name, {.ranks = ranks, .micro_batches = micro_batches}));
}

TEST(EmulatedPipeline, ComputesAndKeepsWhatItsScheduleSays) {
  test::LocalJob job(3);
  for (const std::string name :
       {"gpipe", "1f1b", "zero_bubble:5", "interleaved", "pipedream", "2bw", "forward_only"}) {
    const pipeline::PipelineSchedule schedule = schedule_of(name, 3, 6);
    const auto errors = job.run([&](Rank rank, Communicator& communicator) {
      SteadyAlarm alarm;
      const TransferTime transfer = measure_transfer(communicator, 10'000, alarm);
      EXPECT_GT(transfer.transfer, 0);
      EXPECT_LT(transfer.transfer, 0.01);
      const std::shared_ptr<Communicator> borrowed(std::shared_ptr<void>(), &communicator);
      const PipelineFigures figures = measure_pipeline(
          borrowed, schedule,
          {.compute = kCompute, .message_bytes = 10'000, .warmup = 2, .steps = 6}, transfer, alarm);
      const double parts = schedule.trains ? 3 : 1;
      EXPECT_NEAR(figures.ideal, 6 * parts * 4e-3, 1e-9);
      EXPECT_GE(figures.step, figures.ideal * 0.999);  // A sleep never ends early.
      EXPECT_GE(figures.predicted, figures.ideal * 0.999) << name;
      EXPECT_NEAR(figures.bubble, 1 - figures.ideal / figures.step, 1e-9);
      if (rank == 0) {
        EXPECT_EQ(figures.kept, std::ranges::max(kept_by_rank(schedule))) << name;
      }
    });
    EXPECT_THAT(errors, Each("")) << name;
  }
}

/// Two replicas of two stages: a rank sends the gradients' sums and its stage's messages.
TEST(EmulatedPipeline, ReplicasSumTheirGradients) {
  constexpr std::size_t kGradients = 6 << 20, kMessage = 10'000;
  constexpr std::size_t kMicroBatches = 4, kSteps = 3;
  test::LocalJob job(4);
  const pipeline::PipelineSchedule schedule = schedule_of("1f1b", 2, kMicroBatches);
  for (const bool each : {false, true}) {
    const auto errors = job.run([&](Rank rank, Communicator& communicator) {
      const std::vector<Rank> own{rank % 2, rank % 2 + 2}, same{rank / 2 * 2, rank / 2 * 2 + 1};
      const auto pipeline = communicator.subgroup(own);
      const auto data = communicator.subgroup(same);
      SteadyAlarm alarm;
      const std::size_t before = communicator.payload_bytes_sent();
      const PipelineFigures figures = measure_pipeline(pipeline, schedule,
                                                       {.compute = kCompute,
                                                        .message_bytes = kMessage,
                                                        .warmup = 1,
                                                        .steps = kSteps - 1,
                                                        .replicas = {data, kGradients, each},
                                                        .prioritizes = !each},
                                                       {1e-4, 1e-5}, alarm);
      EXPECT_GE(figures.step, figures.ideal * 0.999);
      // Each of two ranks sends its half of the gradients and the sum of the other half.
      const std::size_t sums = kSteps * (each ? kMicroBatches : 1) * kGradients;
      const std::size_t messages = kSteps * kMicroBatches * (kMessage / 8 + 1) * 8;
      const std::size_t sent = communicator.payload_bytes_sent() - before;
      EXPECT_GE(sent, sums + messages);
      EXPECT_LE(sent, sums + messages + 100) << "the figures";
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(EmulatedPipeline, RefusesTheMessageOfAnotherTask) {
  const pipeline::PipelineSchedule schedule = schedule_of("forward_only", 2, 2);
  const pipeline::PipelineCosts costs;
  SteadyAlarm alarm;
  EmulatedStages sender(schedule, costs, 64, 1, alarm);
  EmulatedStages receiver(schedule, costs, 64, 1, alarm);
  const LentConstSpan sent = sender.output({0, 1, 1}, 0);
  const auto received = receiver.receive_buffer({0, 1, 0}, 0);
  ASSERT_TRUE(received);
  ASSERT_EQ(received->count, sent.count);
  std::memcpy(received->data, sent.data, sent.count * sizeof(std::int64_t));
  try {
    receiver.compute({pipeline::Compute::forward, 1, 0}, 0);
    FAIL();
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::corrupted);
    EXPECT_THAT(e.what(), HasSubstr("micro-batch 0 from stage 0 to stage 1"));
  }
}

}  // namespace
}  // namespace gradwire::emulation

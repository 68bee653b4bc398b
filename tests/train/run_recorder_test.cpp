#include "gradwire/recipe/run_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(RunRecorder, KeepsStepsAndTheTimesOfWholeEpochs) {
  recipe::RunRecorder recorder;
  recorder.begin_epoch(Time(milliseconds(1000)));
  recorder.step(7, 2.5, 0.5, {.compute = 0.25, .exposed = 0.125, .data = 0.5});
  recorder.end_epoch(Time(milliseconds(1500)), false);  // Resumed in the middle of the epoch.
  recorder.begin_epoch(Time(milliseconds(2000)));
  recorder.step(8, 2, 0.25, {.compute = 0.5});
  recorder.end_epoch(Time(milliseconds(3250)), true);
  recorder.test({.steps = 9, .loss = 1.5, .accuracy = 0.5});
  const auto record = recorder.record(recipe::TrainConfig{}, {.ranks = 4, .steps = 2});
  EXPECT_EQ(record.strategy, "DDP x4");
  EXPECT_EQ(record.summary.steps, 2);
  EXPECT_EQ(record.every, 1);
  EXPECT_THAT(record.epoch_seconds, ElementsAre(1.25));
  ASSERT_EQ(record.steps.size(), 2);
  EXPECT_EQ(record.steps[0].step, 7);
  EXPECT_EQ(record.steps[0].loss, 2.5);
  EXPECT_EQ(record.steps[0].seconds(), 0.875);
  EXPECT_EQ(record.steps[1].compute, 0.5);
  EXPECT_EQ(record.steps[1].learning_rate, 0.25);
  ASSERT_EQ(record.tests.size(), 1);
  EXPECT_EQ(record.tests[0].steps, 9);
}

TEST(RunRecorder, NamesTheStrategy) {
  recipe::TrainConfig config;
  EXPECT_EQ(recipe::strategy_of(config, 1), "1 rank");
  config.zero.stage = 3;
  EXPECT_EQ(recipe::strategy_of(config, 2), "ZeRO-3 x2");
  config.zero.stage = 0;
  config.local_steps.enabled = true;
  EXPECT_EQ(recipe::strategy_of(config, 8), "local SGD x8");
}

}  // namespace
}  // namespace gradwire

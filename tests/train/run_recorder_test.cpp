#include "gradwire/recipe/run_recorder.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/recipe/slow_steps.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

class AlarmOfTest final : public emulation::Alarm {
 public:
  Time now() const override { return now_; }
  void await(Time time) override { now_ = std::max(now_, time); }

 private:
  Time now_{};
};

TEST(SlowSteps, TakeAMultipleOfTheirOwnCompute) {
  AlarmOfTest alarm;
  recipe::SlowSteps slow({.factor = 4, .share = 1}, 1, alarm);
  slow.wait();  // Before the first step its compute is not known.
  EXPECT_EQ(alarm.now(), Time(milliseconds(0)));
  slow.end(0.25);
  slow.wait();
  EXPECT_EQ(alarm.now(), Time(milliseconds(750)));
  slow.end(0.75 + 0.125);  // It has waited 0.75 s of these.
  slow.wait();
  EXPECT_EQ(alarm.now(), Time(milliseconds(750 + 375)));
}

TEST(SlowSteps, WaitInAShareOfThem) {
  AlarmOfTest alarm;
  recipe::SlowSteps slow({.factor = 2, .share = 0.25}, 1, alarm);
  int slow_ones = 0;
  for (int step = 0; step < 1000; ++step) {
    const Time before = alarm.now();
    slow.wait();
    const double waited = std::chrono::duration<double>(alarm.now() - before).count();
    if (waited > 0) ++slow_ones;
    slow.end(0.5 + waited);
  }
  EXPECT_NEAR(slow_ones, 250, 50);
}

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

#include "gradwire/recipe/run_recorder.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/recipe/run_staleness.h"
#include "gradwire/recipe/slow_steps.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(StepMeter, KnowsThePaceOfPushesWithoutTheFirstStep) {
  recipe::StepMeter meter;
  Time now{};
  for (const int step : {100, 10, 14, 10, 14}) {
    meter.begin(now, {}, -1);
    meter.end(now += milliseconds(step), {}, -1);
    if (meter.steps() > 1) continue;
    EXPECT_EQ(meter.pace(1).mean, Duration::zero()) << "it is not known yet";
  }
  EXPECT_NEAR(seconds(meter.pace(5).mean), 0.012, 1e-8);
  EXPECT_NEAR(seconds(meter.pace(5).deviation), 0.002, 1e-8);
  // Three steps make a push.
  meter.begin(now, {}, -1);
  meter.end(now, {}, -1);
  EXPECT_NEAR(seconds(meter.pace(2).mean), 3 * 0.0096, 1e-8);
}

servers::ServerReport report_of(const std::vector<int>& paces) {
  servers::ServerReport report;
  report.by_unit.resize(2);
  for (const int pace : paces) {
    report.paces.push_back({.mean = milliseconds(pace), .deviation = milliseconds(1)});
  }
  return report;
}

TEST(RunStaleness, IsPredictedFromThePacesOfWorkers) {
  const auto predicted = [](const std::vector<int>& paces, const recipe::ServedRules& rules) {
    return recipe::summarize_staleness(report_of(paces), rules).predicted;
  };
  recipe::ServedRules rules{.policy = {.mode = servers::Mode::async, .workers = 4}};
  const auto even = predicted({10, 10, 10, 10}, rules);
  EXPECT_NEAR(even->mean, 3, 0.02);
  EXPECT_LE(even->p99, 6);
  const auto slow = predicted({10, 10, 10, 40}, rules);  // Twelve updates in one of its intervals.
  EXPECT_NEAR(slow->mean, 3, 0.02);
  EXPECT_NEAR(static_cast<double>(slow->p99), 12, 2);
  EXPECT_FALSE(predicted({10, 10, 10, 0}, rules)) << "one is lost";
  EXPECT_FALSE(predicted({}, rules));
  rules.policy.workers = 2;
  rules.members = 2;
  EXPECT_NEAR(predicted({10, 10, 40, 10}, rules)->mean, 1, 0.02);
  rules = {.policy = {.workers = 4}};
  EXPECT_FALSE(predicted({10, 10, 10, 10}, rules)) << "common steps";
  rules.policy.use = 0.75;
  EXPECT_NEAR(predicted({10, 10, 10, 40}, rules)->late, 0.25, 0.2);
}

TEST(RunStaleness, IsThatOfTheUnitsThatAreAsynchronous) {
  servers::ServerReport report = report_of({10, 10});
  report.by_unit[0].add(0, 10);
  report.by_unit[1].add(1, 10);
  report.by_worker.resize(2);
  recipe::ServedRules rules{.policy = {.workers = 2, .asynchronous = {false, true}}};
  const auto summary = recipe::summarize_staleness(report, rules);
  EXPECT_EQ(summary.mean, 1);
  EXPECT_EQ(summary.by_unit[0].mean, 0);
  EXPECT_TRUE(summary.by_worker.empty());
  EXPECT_FALSE(summary.predicted);
  // Two members of a group have a slice each of one unit.
  rules = {.policy = {.mode = servers::Mode::async, .workers = 1}, .members = 2};
  const auto grouped = recipe::summarize_staleness(report, rules);
  ASSERT_EQ(grouped.by_unit.size(), 1);
  EXPECT_EQ(grouped.by_unit[0].mean, 0.5);
}

TEST(RunStaleness, OfAWorkerThatIsSlowForGoodHasAdviceInModeSsp) {
  recipe::ServedRules rules{.policy = {.mode = servers::Mode::ssp, .workers = 4, .staleness = 3}};
  const auto advice = [&](const std::vector<int>& paces) {
    return recipe::summarize_staleness(report_of(paces), rules).advice;
  };
  EXPECT_THAT(advice({10, 10, 40, 10}), HasSubstr("worker 2 computes 4.0 times as long"));
  EXPECT_EQ(advice({10, 12, 14, 10}), "");
  rules.policy.mode = servers::Mode::async;
  EXPECT_EQ(advice({10, 10, 40, 10}), "");
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

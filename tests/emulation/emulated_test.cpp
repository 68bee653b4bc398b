#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "gradwire/emulation/emulated_training.h"
#include "gradwire/workload/profiles.h"
#include "tests/gradient/test_alarm.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

/// An ideal network: it carries one bucket at a time, highest priority first, and can be
/// interrupted anywhere.
class IdealAverager final : public Averager {
 public:
  IdealAverager(TestAlarm& alarm, double bytes_per_second)
      : alarm_(alarm), rate_(bytes_per_second) {}

  void start(std::size_t bucket, LentSpan data, int priority) override {
    advance();
    EXPECT_FALSE(left_.contains(bucket)) << "bucket " << bucket << " twice";
    left_[bucket] = static_cast<double>(data.count * sizeof(float)) / rate_;
    priority_[bucket] = priority;
    started.push_back(bucket);
  }

  bool done(std::size_t bucket) override {
    advance();
    return left_.at(bucket) <= 0;
  }

  void wait(std::size_t bucket) override {
    while (!done(bucket)) {
      const auto next = highest_priority();
      alarm_.await(alarm_.now() +
                   std::chrono::ceil<Duration>(std::chrono::duration<double>(left_.at(*next))));
    }
    left_.erase(bucket);
  }

  void end_step() override {
    EXPECT_TRUE(left_.empty()) << "not all have been waited for";
    ++steps;
  }

  std::vector<State> state() override { return {}; }
  void load_state(const std::vector<SavedState>&) override {}
  std::string describe() const override { return "ideal"; }

  std::vector<std::size_t> started;
  int steps = 0;

 private:
  std::optional<std::size_t> highest_priority() const {
    std::optional<std::size_t> best;
    for (const auto& [bucket, left] : left_) {
      if (left > 0 && (!best || priority_.at(bucket) > priority_.at(*best))) best = bucket;
    }
    return best;
  }

  void advance() {
    double passed = std::chrono::duration<double>(alarm_.now() - last_).count();
    last_ = alarm_.now();
    for (auto next = highest_priority(); next && passed > 0; next = highest_priority()) {
      const double used = std::min(passed, left_.at(*next));
      left_[*next] -= used;
      if (left_[*next] < 1e-12) left_[*next] = 0;
      passed -= used;
    }
  }

  TestAlarm& alarm_;
  double rate_;
  Time last_{};
  std::map<std::size_t, double> left_;  ///< Seconds.
  std::map<std::size_t, int> priority_;
};

constexpr Duration kCompute = milliseconds(900);
constexpr std::int64_t kFragments = 2;  ///< Of local steps.

struct Outcome {
  double step_ms = 0, stalled_ms = 0;
  std::vector<std::size_t> started;
  int averager_steps = 0;
};

/// Runs twelve steps over a network of that rate, after four warm-up steps.
Outcome run(const LayerProfile& profile, EmulatedTrainingOptions options, double bytes_per_second) {
  TestAlarm alarm;
  IdealAverager network(alarm, bytes_per_second);
  const StepPlan plan =
      options.local_steps ? plan_local_steps(profile, kFragments) : plan_step(profile);
  EmulatedGradients gradients(plan.buckets, 1);
  options.compute = kCompute;
  EmulatedTraining training(profile, plan, options, gradients,
                            bytes_per_second > 0 ? &network : nullptr, alarm);
  for (int i = 0; i < 4; ++i) training.step();
  const Time begin = training.device().free_at();
  const Duration stalled = training.device().stalled();
  for (int i = 0; i < 12; ++i) training.step();
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Outcome outcome{.step_ms = Milliseconds(training.device().free_at() - begin).count() / 12,
                  .stalled_ms = Milliseconds(training.device().stalled() - stalled).count() / 12};
  training.finish();
  outcome.started = network.started;
  outcome.averager_steps = network.steps;
  return outcome;
}

double bytes_of(const LayerProfile& profile) {
  return static_cast<double>(profile.parameters() * sizeof(float));
}

TEST(EmulatedTraining, TakesTheTimeOfComputingAlone) {
  const LayerProfile profile = profile_named("resnet50");
  EXPECT_NEAR(run(profile, {}, 0).step_ms, 900, 0.01);
  EXPECT_NEAR(run(profile, {.accumulate = 3}, 0).step_ms, 2700, 0.01);
}

TEST(EmulatedTraining, OverlapsToTheBound) {
  const LayerProfile profile = profile_named("resnet50");
  for (const double communication_s : {0.3, 0.6, 0.85, 1.2, 3.0}) {
    const Outcome outcome = run(profile, {}, bytes_of(profile) / communication_s);
    const double bound_ms = std::max(900.0, 1e3 * communication_s);
    EXPECT_GE(outcome.step_ms, bound_ms - 0.1);
    EXPECT_LE(outcome.step_ms, 1.005 * bound_ms) << communication_s;
    EXPECT_NEAR(outcome.stalled_ms, outcome.step_ms - 900, 0.1);
  }
}

TEST(EmulatedTraining, WithoutOverlapTheTimesAddUp) {
  const LayerProfile profile = profile_named("resnet50");
  const Outcome outcome = run(profile, {.overlap = Overlap::none}, bytes_of(profile) / 0.6);
  EXPECT_NEAR(outcome.step_ms, 1500, 0.1);
}

TEST(EmulatedTraining, BackwardAloneHidesLess) {
  const LayerProfile profile = profile_named("resnet50");
  const double rate = bytes_of(profile) / 0.85;
  const double none = run(profile, {.overlap = Overlap::none}, rate).step_ms;
  const double backward = run(profile, {.overlap = Overlap::backward}, rate).step_ms;
  const double full = run(profile, {.overlap = Overlap::full}, rate).step_ms;
  EXPECT_LT(backward, none - 100);
  EXPECT_LT(full, backward - 100);
}

TEST(EmulatedTraining, SendsOnceForSeveralPasses) {
  const LayerProfile profile = profile_named("resnet50");
  const Outcome outcome = run(profile, {.accumulate = 2}, bytes_of(profile) / 3.6);
  // Nothing can be sent in the first pass: it has no gradients, and none are left over.
  EXPECT_NEAR(outcome.step_ms, 900 + 3600, 40);
  EXPECT_EQ(outcome.started.size(), 16 * plan_step(profile).buckets.size());
  EXPECT_EQ(outcome.averager_steps, 16);
}

TEST(EmulatedTraining, StartsBucketsInOneOrderWhateverOverlaps) {
  const LayerProfile profile = profile_named("resnet50");
  const auto full = run(profile, {}, 1e9).started;
  EXPECT_EQ(run(profile, {.overlap = Overlap::none}, 1e9).started, full);
  EXPECT_EQ(run(profile, {.overlap = Overlap::backward}, 1e7).started, full);
  const std::size_t buckets = plan_step(profile).buckets.size();
  for (std::size_t i = 0; i < buckets; ++i) EXPECT_EQ(full[i], i);
}

/// Four local steps, two fragments.
EmulatedTrainingOptions local(std::int64_t overlap_steps) {
  EmulatedTrainingOptions options;
  options.local_steps.emplace(
      LocalStepsConfig{.steps = 4, .fragments = kFragments, .overlap_steps = overlap_steps});
  return options;
}

TEST(EmulatedTraining, LocalStepsSendEachFragmentOnceARound) {
  const LayerProfile profile = profile_named("resnet50");
  const Outcome outcome = run(profile, local(0), 1e9);
  const StepPlan plan = plan_local_steps(profile, kFragments);
  std::vector<std::size_t> round(plan.buckets.size());
  std::iota(round.begin(), round.end(), 0);
  std::vector<std::size_t> expected;
  for (int i = 0; i < 4; ++i) expected.insert(expected.end(), round.begin(), round.end());
  EXPECT_EQ(outcome.started, expected);  // In 16 steps: the first fragment's buckets are first.
  EXPECT_EQ(outcome.averager_steps, 8);
}

TEST(EmulatedTraining, LocalStepsWaitForAnAverageUnlessItOverlaps) {
  const LayerProfile profile = profile_named("resnet50");
  // All of it takes 1.6 s, a fragment about half of that, which is less than a step.
  const double rate = bytes_of(profile) / 1.6;
  EXPECT_NEAR(run(profile, local(0), rate).step_ms, 900 + 1600 / 4.0, 0.1);
  EXPECT_NEAR(run(profile, local(1), rate).step_ms, 900, 0.1);
}

TEST(EmulatedTraining, LocalStepsHideNoMoreThanTheOverlapTheyAreGiven) {
  const LayerProfile profile = profile_named("resnet50");
  // A fragment takes two steps' time, of which one may pass: one is exposed in each quarter of a
  // round.
  const Outcome outcome = run(profile, local(1), bytes_of(profile) / 3.6);
  EXPECT_NEAR(outcome.step_ms, 900 + (3600 - 2 * 900) / 4.0, 0.1);
  EXPECT_NEAR(outcome.stalled_ms, outcome.step_ms - 900, 0.1);
}

TEST(EmulatedDevice, DoesNotWaitForAHostThatIsLate) {
  TestAlarm alarm;
  EmulatedDevice device(alarm);
  const Time begin = alarm.now();
  device.compute(milliseconds(5));
  alarm.await(begin + milliseconds(8));  // The host was busy.
  device.compute(milliseconds(5));
  EXPECT_EQ(device.free_at(), begin + milliseconds(10));
  EXPECT_EQ(device.stalled(), Duration::zero());
  alarm.await(begin + milliseconds(12));
  device.resume();
  EXPECT_EQ(device.stalled(), milliseconds(2));
  EXPECT_EQ(device.free_at(), begin + milliseconds(12));
}

TEST(SteadyAlarm, GoesOffInTime) {
  SteadyAlarm alarm;
  const Time at = alarm.now() + milliseconds(2);
  alarm.await(at);
  EXPECT_GE(alarm.now(), at);
  alarm.await(at);  // At once.
}

TEST(EmulatedGradients, AreOfTheirSizeAndOfTheSeed) {
  const std::vector<BucketShape> buckets{{.count = 100'000}, {.count = 7}};
  EmulatedGradients a(buckets, 1), b(buckets, 1), c(buckets, 2);
  EXPECT_EQ(a.lend(0).count, 100'000u);
  EXPECT_EQ(a.lend(1).count, 7u);
  EXPECT_EQ(a.read(0), b.read(0));
  EXPECT_NE(a.read(0), c.read(0));
  const auto* values = static_cast<const float*>(a.lend(0).data);
  EXPECT_TRUE(std::all_of(values, values + 100'000, [](float v) { return std::abs(v) < 0.01f; }));
  EXPECT_TRUE(std::any_of(values, values + 100'000, [](float v) { return std::abs(v) > 1e-3f; }));
}

}  // namespace
}  // namespace gradwire

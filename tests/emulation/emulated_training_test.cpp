#include "gradwire/emulation/emulated_training.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/exchange/communicator_exchange.h"
#include "gradwire/workload/profiles.h"
#include "tests/support/exchanging.h"
#include "tests/support/ideal_exchange.h"

namespace gradwire::emulation {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::int64_t kFragments = 2;  ///< Fragments of local steps.

struct Outcome {
  double step_ms = 0, stalled_ms = 0;
  double bytes = 0;  ///< A step.
  EmulatedMemory memory;
  std::vector<step::StartedOperation> started;
  int passes = 0;
};

step::StepPlan plan_of(const workload::LayerProfile& profile,
                       const EmulatedTrainingOptions& options,
                       const step::StepPlanOptions& buckets) {
  if (options.local_steps) return step::plan_local_steps(profile, kFragments);
  return options.policy.stage == 3 ? step::plan_blocks(profile, 1, buckets)
                                   : step::plan_step(profile, buckets);
}

/// Runs twelve steps over a network of that rate, after four warm-up steps.
Outcome run(const workload::LayerProfile& profile, EmulatedTrainingOptions options,
            double bytes_per_second, const step::StepPlanOptions& buckets = {},
            exchange::ExchangeTraits traits = {}) {
  constexpr int kSteps = 12;
  options.policy.ranks = std::max(options.policy.ranks, 2);
  const step::StepPlan plan = plan_of(profile, options, buckets);
  step::TestAlarm alarm;
  step::IdealExchange network(alarm, bytes_per_second, options.policy.ranks, traits);
  UnitsInMemory units(plan, options.policy.stage, 1, options.policy.ranks, 1);
  EmulatedTraining training(profile, plan, options, units, network, alarm);
  for (int i = 0; i < 4; ++i) training.step();
  const Time begin = training.device().free_at();
  const Duration stalled = training.device().stalled();
  const double sent = network.sent;
  for (int i = 0; i < kSteps; ++i) training.step();
  Outcome outcome{
      .step_ms = Milliseconds(training.device().free_at() - begin).count() / kSteps,
      .stalled_ms = Milliseconds(training.device().stalled() - stalled).count() / kSteps,
      .bytes = (network.sent - sent) / kSteps,
      .memory = units.peak_memory()};
  training.finish();
  outcome.started = network.started;
  outcome.passes = network.passes;
  return outcome;
}

// With two ranks, an all-reduce sends as many bytes as the gradients have.
double bytes_of(const workload::LayerProfile& profile) {
  return static_cast<double>(profile.parameters() * sizeof(float));
}

EmulatedTrainingOptions replicated(step::Overlap overlap = step::Overlap::full,
                                   int accumulate = 1) {
  return {.compute = milliseconds(900), .accumulate = accumulate, .policy = {.overlap = overlap}};
}

TEST(EmulatedTraining, OverlapsToTheBound) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  for (const double communication_s : {0.3, 0.6, 0.85, 1.2, 3.0}) {
    const Outcome outcome = run(profile, replicated(), bytes_of(profile) / communication_s);
    const double bound_ms = std::max(900.0, 1e3 * communication_s);
    EXPECT_GE(outcome.step_ms, bound_ms - 0.1);
    EXPECT_LE(outcome.step_ms, 1.005 * bound_ms) << communication_s;
    EXPECT_NEAR(outcome.stalled_ms, outcome.step_ms - 900, 0.1);
  }
}

TEST(EmulatedTraining, WithoutOverlapTheTimesAddUp) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  const Outcome outcome = run(profile, replicated(step::Overlap::none), bytes_of(profile) / 0.6);
  EXPECT_NEAR(outcome.step_ms, 1500, 0.1);
}

TEST(EmulatedTraining, BackwardAloneHidesLess) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  const double rate = bytes_of(profile) / 0.85;
  const double none = run(profile, replicated(step::Overlap::none), rate).step_ms;
  const double backward = run(profile, replicated(step::Overlap::backward), rate).step_ms;
  const double full = run(profile, replicated(), rate).step_ms;
  EXPECT_LT(backward, none - 100);
  EXPECT_LT(full, backward - 100);
}

TEST(EmulatedTraining, SendsOnceForSeveralPasses) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  const Outcome outcome = run(profile, replicated(step::Overlap::full, 2), bytes_of(profile) / 3.6);
  // Nothing can be sent in the first pass: it has no gradients, and none are left over.
  EXPECT_NEAR(outcome.step_ms, 900 + 3600, 40);
  EXPECT_EQ(outcome.started.size(), 16 * step::plan_step(profile).buckets.size());
  EXPECT_EQ(outcome.passes, 16);
}

TEST(EmulatedTraining, StartsUnitsInOneOrderWhateverOverlaps) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  const std::size_t units = step::plan_step(profile).buckets.size();
  for (const step::Overlap overlap :
       {step::Overlap::none, step::Overlap::backward, step::Overlap::full}) {
    for (const double rate : {1e7, 1e9}) {
      const auto started = run(profile, replicated(overlap), rate).started;
      for (std::size_t i = 0; i < started.size(); ++i) EXPECT_EQ(started[i].unit, i % units);
    }
  }
}

/// Four local steps, two fragments.
EmulatedTrainingOptions local(std::int64_t overlap_steps) {
  EmulatedTrainingOptions options = replicated();
  options.local_steps.emplace(
      step::LocalStepsConfig{.steps = 4, .fragments = kFragments, .overlap_steps = overlap_steps});
  return options;
}

TEST(EmulatedTraining, LocalStepsSendEachFragmentOnceARound) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  const Outcome outcome = run(profile, local(0), 1e9);
  const std::size_t units = step::plan_local_steps(profile, kFragments).buckets.size();
  ASSERT_EQ(outcome.started.size(), 4 * units);  // In 16 steps: the first fragment's are first.
  for (std::size_t i = 0; i < outcome.started.size(); ++i)
    EXPECT_EQ(outcome.started[i].unit, i % units);
  EXPECT_EQ(outcome.passes, 8);
}

TEST(EmulatedTraining, LocalStepsWaitForAnAverageUnlessItOverlaps) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  // All of it takes 1.6 s, a fragment about half of that, which is less than a step.
  const double rate = bytes_of(profile) / 1.6;
  EXPECT_NEAR(run(profile, local(0), rate).step_ms, 900 + 1600 / 4.0, 0.1);
  EXPECT_NEAR(run(profile, local(1), rate).step_ms, 900, 0.1);
}

TEST(EmulatedTraining, LocalStepsHideNoMoreThanTheOverlapTheyAreGiven) {
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  // A fragment takes two steps' time, of which one may pass: one is exposed in each quarter of a
  // round.
  const Outcome outcome = run(profile, local(1), bytes_of(profile) / 3.6);
  EXPECT_NEAR(outcome.step_ms, 900 + (3600 - 2 * 900) / 4.0, 0.1);
  EXPECT_NEAR(outcome.stalled_ms, outcome.step_ms - 900, 0.1);
}

// ZeRO: 16 equal layers on 4 ranks.

constexpr int kRanks = 4;
constexpr std::size_t kLayers = 16;
constexpr double kCompute_ms = 960;  ///< Per layer: 20 ms forward, 40 ms backward.

workload::LayerProfile sixteen_layers() {
  return workload::profile_named("uniform:16x64K");
}

EmulatedTrainingOptions sharded(int stage, std::size_t prefetch = 2, std::size_t reductions = 4) {
  return {.compute = milliseconds(960),
          .policy = {.stage = stage,
                     .ranks = kRanks,
                     .max_reductions = reductions,
                     .prefetch_units = prefetch,
                     .prefetch_elements = 0}};
}

/// `carries`: all-reduces of the whole model that fit into the compute time.
Outcome run_zero(const EmulatedTrainingOptions& options, double carries,
                 exchange::ExchangeTraits traits = {}) {
  const double all_reduce = 2.0 * (kRanks - 1) / kRanks * bytes_of(sixteen_layers());
  Outcome outcome = run(sixteen_layers(), options, carries * all_reduce / (1e-3 * kCompute_ms),
                        {.limits = {1, 1, 1}}, traits);
  outcome.bytes /= all_reduce;
  return outcome;
}

TEST(EmulatedZero, SendsWhatTheTheorySays) {
  EXPECT_DOUBLE_EQ(run_zero(sharded(1), 2).bytes, 1);
  EXPECT_DOUBLE_EQ(run_zero(sharded(2), 2).bytes, 1);
  // Backward finds the last layer's parameters where forward has left them.
  for (const std::size_t prefetch : {0u, 1u, 2u})
    EXPECT_DOUBLE_EQ(run_zero(sharded(3, prefetch), 2).bytes, (16 + 15 + 16) / 32.0);
}

TEST(EmulatedZero, HidesAllButTheFirstLayer) {
  // One layer's reduction and gather cannot be hidden: that layer's gradient is complete last, and
  // its parameters are needed first.
  for (const double carries : {1.1, 2.0, 4.0}) {
    const double first_layer_ms = kCompute_ms / carries / kLayers;
    EXPECT_NEAR(run_zero(sharded(1), carries).step_ms, kCompute_ms + first_layer_ms, 12) << carries;
    EXPECT_NEAR(run_zero(sharded(2), carries).step_ms, kCompute_ms + first_layer_ms, 12) << carries;
  }
  EXPECT_LE(run_zero(sharded(3), 2).step_ms, 1.04 * kCompute_ms);
}

TEST(EmulatedZero, IsAsFastAsTheNetworkWhereThatIsSlow) {
  EXPECT_NEAR(run_zero(sharded(1), 0.5).step_ms, 2 * kCompute_ms, 60);
  EXPECT_NEAR(run_zero(sharded(2), 0.5).step_ms, 2 * kCompute_ms, 60);
  EXPECT_NEAR(run_zero(sharded(3), 0.5).step_ms, 2 * kCompute_ms * 47 / 32.0, 90);
}

TEST(EmulatedZero, TrainsInWhateverOrderTheExchangeNeeds) {
  for (const exchange::OperationOrder order :
       {exchange::OperationOrder::all, exchange::OperationOrder::by_kind}) {
    for (const int stage : {1, 2, 3})
      EXPECT_LE(run_zero(sharded(stage), 2, {.order = order}).step_ms, 1.5 * kCompute_ms) << stage;
  }
}

// A reduction takes 7.5 ms of its layer's 40; the host polls every millisecond.
TEST(EmulatedZero, AShardIsSteppedAndGatheredWhileALayerComputes) {
  constexpr Duration kReductionAndAPoll = milliseconds(9);
  std::map<std::size_t, Time> reduced;
  for (const step::StartedOperation& operation : run_zero(sharded(1), 4).started) {
    if (operation.kind == 'r') reduced[operation.unit] = operation.at;
    if (operation.kind == 'g') {
      EXPECT_LE(operation.at - reduced.at(operation.unit), kReductionAndAPoll);
    }
  }
  EXPECT_EQ(reduced.size(), kLayers);
}

TEST(EmulatedZero, WithoutPrefetchEveryGatherIsExposed) {
  // A layer's gather takes 15 ms of its forward's 20.
  EXPECT_GT(run_zero(sharded(3, 0), 2).step_ms, kCompute_ms + 31 * 15);
}

TEST(EmulatedZero, HoldsAsMuchAsTheStageSays) {
  const std::size_t all = 16 << 16, layer = 1 << 16;
  const EmulatedMemory one = run_zero(sharded(1), 2).memory;
  EXPECT_EQ(one.parameters, all);
  EXPECT_EQ(one.gradients, all + all / kRanks);
  const EmulatedMemory two = run_zero(sharded(2, 2, 2), 0.5).memory;
  EXPECT_EQ(two.parameters, all);
  EXPECT_LE(two.gradients, all / kRanks + 2 * layer);
  const EmulatedMemory three = run_zero(sharded(3, 2, 2), 0.5).memory;
  EXPECT_LE(three.parameters, all / kRanks + 3 * layer);
  EXPECT_LE(three.gradients, all / kRanks + 2 * layer);
}

TEST(EmulatedZero, GathersInTheOrderOfUse) {
  std::vector<std::size_t> gathered;
  for (const step::StartedOperation& operation : run_zero(sharded(3, 1), 4).started) {
    if (operation.kind == 'g') gathered.push_back(operation.unit);
  }
  // The first step knows no order, and so does not keep the last layer for backward.
  ASSERT_GE(gathered.size(), 63u);
  for (std::size_t i = 0; i < kLayers; ++i) EXPECT_EQ(gathered[i], i);
  for (std::size_t i = 0; i < kLayers; ++i) EXPECT_EQ(gathered[16 + i], 15 - i);
  for (std::size_t i = 0; i < kLayers; ++i) EXPECT_EQ(gathered[32 + i], i);
  for (std::size_t i = 0; i + 1 < kLayers; ++i) EXPECT_EQ(gathered[48 + i], 14 - i);
}

// Otherwise a rank whose gradients arrive early would wait forever for gathers that others never
// start.
TEST(EmulatedZero, RanksOfDifferentSpeedGatherTheSameUnits) {
  for (const int stage : {1, 2, 3}) {
    for (const exchange::OperationOrder order :
         {exchange::OperationOrder::all, exchange::OperationOrder::by_kind,
          exchange::OperationOrder::by_unit}) {
      std::map<std::size_t, int> gathers[2];
      for (const int fast : {0, 1}) {
        for (const auto& operation : run_zero(sharded(stage), fast ? 1e3 : 0.3, {order}).started) {
          if (operation.kind == 'g') ++gathers[fast][operation.unit];
        }
      }
      EXPECT_EQ(gathers[0], gathers[1]) << "stage " << stage;
    }
  }
}

TEST(EmulatedZero, NoLayerRunsOnParametersThatHaveNotArrived) {
  const workload::LayerProfile profile = sixteen_layers();
  for (const int stage : {1, 2, 3}) {
    const EmulatedTrainingOptions options = sharded(stage);
    const step::StepPlan plan = plan_of(profile, options, {.limits = {1, 1, 1}});
    step::TestAlarm alarm;
    step::IdealExchange network(alarm, 1e7, kRanks);
    network.forgets = plan.needs[5].front();
    UnitsInMemory units(plan, stage, 1, kRanks, 1);
    EmulatedTraining training(profile, plan, options, units, network, alarm);
    try {
      training.step();
      training.step();
      FAIL() << "stage " << stage;
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      EXPECT_THAT(error.what(), HasSubstr("layer 5"));
    }
  }
}

TEST(EmulatedZero, TrainsOverSockets) {
  const workload::LayerProfile profile = workload::profile_named("uniform:6x40K");
  for (const int stage : {1, 2, 3}) {
    test::LocalJob job(3);
    std::vector<double> sent(3);
    const auto errors = job.run([&](Rank rank, Communicator& c) {
      EmulatedTrainingOptions options = sharded(stage, 1);
      options.compute = milliseconds(3 + 2 * rank);
      options.policy.ranks = 3;
      const step::StepPlan plan = plan_of(profile, options, {});
      const auto exchange = exchange::communicator_exchange(test::shared(c), plan.buckets);
      UnitsInMemory units(plan, stage, rank, 3, 1);
      SteadyAlarm alarm;
      EmulatedTraining training(profile, plan, options, units, *exchange, alarm);
      const std::size_t before = c.payload_bytes_sent();
      for (int i = 0; i < 10; ++i) training.step();
      training.finish();
      sent[static_cast<std::size_t>(rank)] =
          static_cast<double>(c.payload_bytes_sent() - before) / 10;
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    const double all_reduce = 2.0 * 2 / 3 * 6 * 40 * 1024;
    for (const double bytes : sent) {
      EXPECT_GE(bytes / all_reduce, 0.99) << stage;
      EXPECT_LE(bytes / all_reduce, stage == 3 ? 1.5 : 1.01) << stage;
    }
  }
}

TEST(EmulatedDevice, DoesNotWaitForAHostThatIsLate) {
  step::TestAlarm alarm;
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

TEST(UnitsInMemory, HaveGradientsOfTheirSizeAndOfTheSeed) {
  const step::StepPlan plan{.buckets = {{.count = 100'000}, {.count = 7}},
                            .is_root = {false, false}};
  UnitsInMemory a(plan, 0, 0, 1, 1), b(plan, 0, 0, 1, 1), c(plan, 0, 0, 1, 2);
  const auto values = [](UnitsInMemory& units) {
    const LentSpan whole = units.gradients(0).whole;
    const auto* data = static_cast<const float*>(whole.data);
    return std::vector<float>(data, data + whole.count);
  };
  EXPECT_EQ(a.gradients(1).whole.count, 7u);
  EXPECT_EQ(values(a).size(), 100'000u);
  EXPECT_EQ(values(a), values(b));
  EXPECT_NE(values(a), values(c));
  EXPECT_TRUE(std::ranges::all_of(values(a), [](float v) { return std::abs(v) < 0.01f; }));
  EXPECT_TRUE(std::ranges::any_of(values(a), [](float v) { return std::abs(v) > 1e-3f; }));
}

TEST(UnitPool, UsesMemoryAgain) {
  UnitPool pool;
  const auto a = pool.take(100);
  const auto b = pool.take(50);
  EXPECT_EQ(pool.peak_bytes(), 600u);
  pool.release(a);
  EXPECT_EQ(pool.take(80).data(), a.data());
  pool.release(b);
  EXPECT_EQ(pool.take(60).size(), 60u);  // Replaces the 50.
  EXPECT_EQ(pool.peak_bytes(), 640u);
}

}  // namespace
}  // namespace gradwire::emulation

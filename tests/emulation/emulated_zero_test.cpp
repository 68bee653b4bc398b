#include "gradwire/emulation/emulated_zero.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/workload/profiles.h"
#include "tests/gradient/averaging.h"
#include "tests/gradient/test_alarm.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr std::size_t kLayers = 16;
constexpr Duration kCompute = milliseconds(960);  // Per layer: 20 ms forward, 40 ms backward.

/// One operation, and when it started.
struct Moved {
  char kind = 'r';  ///< Reduce or gather.
  std::size_t unit = 0;
  Time at{};
};

/// This rank's view of an ideal network with identical ranks. It carries one operation at a time,
/// highest priority first, and can be interrupted anywhere. A completed gather fills the others'
/// parts with copies of this rank's own.
class IdealExchange final : public ShardExchange {
 public:
  IdealExchange(TestAlarm& alarm, double bytes_per_second)
      : alarm_(alarm), rate_(bytes_per_second) {}

  void start_reduce(std::size_t index, LentSpan unit, LentSpan, int priority) override {
    start('r', index, unit.count, priority, {});
  }
  void start_gather(std::size_t index, LentConstSpan shard, LentSpan unit, int priority) override {
    start('g', index, unit.count, priority, std::span(static_cast<float*>(unit.data), unit.count));
    in_flight_.at({'g', index}).value = *static_cast<const float*>(shard.data);
  }
  bool reduced(std::size_t index) override { return over({'r', index}); }
  bool gathered(std::size_t index) override { return over({'g', index}); }
  void wait_reduce(std::size_t index) override { wait({'r', index}); }
  void wait_gather(std::size_t index) override { wait({'g', index}); }

  /// Gathers of this unit are reported as complete at once, although no data arrived.
  std::optional<std::size_t> forgets;

  std::vector<Moved> started;
  double sent = 0;  ///< In bytes, by this rank.

 private:
  using Key = std::pair<char, std::size_t>;
  struct OperationInFlight {
    double left = 0;  ///< Seconds.
    int priority = 0;
    std::span<float> unit;
    float value = 0;
  };

  void start(char kind, std::size_t index, std::size_t count, int priority, std::span<float> unit) {
    advance();
    EXPECT_FALSE(in_flight_.contains({kind, index})) << kind << index << " twice";
    const double bytes = static_cast<double>(count * sizeof(float)) * (kRanks - 1) / kRanks;
    in_flight_[{kind, index}] = {bytes / rate_, priority, unit};
    started.push_back({kind, index, alarm_.now()});
    sent += bytes;
  }

  bool over(Key key) {
    advance();
    const auto at = in_flight_.find(key);
    return at == in_flight_.end() || at->second.left <= 0 || is_forgotten(key);
  }

  bool is_forgotten(Key key) const { return key.first == 'g' && forgets == key.second; }

  void wait(Key key) {
    while (!over(key)) {
      const auto next = highest_priority();
      alarm_.await(alarm_.now() + std::chrono::ceil<Duration>(
                                      std::chrono::duration<double>(in_flight_.at(*next).left)));
    }
    const auto at = in_flight_.find(key);
    if (at == in_flight_.end()) return;
    if (!is_forgotten(key)) std::ranges::fill(at->second.unit, at->second.value);
    in_flight_.erase(at);
  }

  std::optional<Key> highest_priority() const {
    std::optional<Key> best;
    for (const auto& [key, operation] : in_flight_) {
      if (operation.left > 0 && (!best || operation.priority > in_flight_.at(*best).priority))
        best = key;
    }
    return best;
  }

  void advance() {
    double passed = std::chrono::duration<double>(alarm_.now() - last_).count();
    last_ = alarm_.now();
    for (auto next = highest_priority(); next && passed > 0; next = highest_priority()) {
      OperationInFlight& operation = in_flight_.at(*next);
      const double used = std::min(passed, operation.left);
      operation.left -= used;
      if (operation.left < 1e-12) operation.left = 0;
      passed -= used;
    }
  }

  TestAlarm& alarm_;
  double rate_;
  Time last_{};
  std::map<Key, OperationInFlight> in_flight_;
};

LayerProfile sixteen_layers() {
  return profile_named("uniform:16x64K");
}

ZeroUnits units_of(const LayerProfile& profile) {
  return zero_units(plan_step(profile, {.limits = {1, 1, 1}}), 1, kRanks);
}

struct Outcome {
  double step_ms = 0;
  double volume = 0;  ///< In all-reduces of the gradients.
  EmulatedMemory memory;
  std::vector<Moved> started;
};

/// Runs ten steps after three warm-up steps. `carries`: all-reduces of the whole model that fit
/// into the compute time.
Outcome run(EmulatedZeroOptions options, double carries) {
  constexpr int kSteps = 10;
  const LayerProfile profile = sixteen_layers();
  const ZeroUnits units = units_of(profile);
  const double all_reduce = 2.0 * (kRanks - 1) / kRanks * static_cast<double>(units.bytes());
  TestAlarm alarm;
  IdealExchange network(alarm,
                        carries * all_reduce / std::chrono::duration<double>(kCompute).count());
  options.compute = kCompute;
  EmulatedZero training(profile, units, options, network, alarm);
  for (int i = 0; i < 3; ++i) training.step();
  const Time begin = training.device().free_at();
  const double sent = network.sent;
  for (int i = 0; i < kSteps; ++i) training.step();
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Outcome outcome{.step_ms = Milliseconds(training.device().free_at() - begin).count() / kSteps,
                  .volume = (network.sent - sent) / kSteps / all_reduce,
                  .memory = training.memory()};
  training.finish();
  outcome.started = network.started;
  return outcome;
}

TEST(EmulatedZero, SendsWhatTheTheorySays) {
  EXPECT_DOUBLE_EQ(run({.stage = 1}, 2).volume, 1);
  EXPECT_DOUBLE_EQ(run({.stage = 2}, 2).volume, 1);
  EXPECT_DOUBLE_EQ(run({.stage = 3, .prefetch = 0}, 2).volume, 1.5);
  // Backward finds the last layer's parameters where forward has left them.
  EXPECT_DOUBLE_EQ(run({.stage = 3, .prefetch = 2}, 2).volume, (16 + 15 + 16) / 32.0);
}

TEST(EmulatedZero, HidesAllButTheFirstLayer) {
  // One layer's reduction and gather cannot be hidden: that layer's gradient is complete last, and
  // its parameters are needed first.
  for (const double carries : {1.1, 2.0, 4.0}) {
    const double first_layer_ms = 960 / carries / kLayers;
    EXPECT_NEAR(run({.stage = 1}, carries).step_ms, 960 + first_layer_ms, 12) << carries;
    EXPECT_NEAR(run({.stage = 2}, carries).step_ms, 960 + first_layer_ms, 12) << carries;
  }
  EXPECT_LE(run({.stage = 3, .prefetch = 2}, 2).step_ms, 1.04 * 960);
}

TEST(EmulatedZero, IsAsFastAsTheNetworkWhereThatIsSlow) {
  EXPECT_NEAR(run({.stage = 1}, 0.5).step_ms, 2 * 960, 60);
  EXPECT_NEAR(run({.stage = 2}, 0.5).step_ms, 2 * 960, 60);
  EXPECT_NEAR(run({.stage = 3}, 0.5).step_ms, 2 * 960 * 47 / 32.0, 90);
}

// A reduction takes 7.5 ms of its layer's 40; the host polls every millisecond.
TEST(EmulatedZero, APartIsSteppedAndGatheredWhileALayerComputes) {
  constexpr Duration kReductionAndALook = milliseconds(9);
  std::map<std::size_t, Time> reduced;
  for (const Moved& moved : run({.stage = 1}, 4).started) {
    if (moved.kind == 'r') reduced[moved.unit] = moved.at;
    if (moved.kind == 'g') {
      EXPECT_LE(moved.at - reduced.at(moved.unit), kReductionAndALook);
    }
  }
  EXPECT_EQ(reduced.size(), kLayers);
}

TEST(EmulatedZero, WithoutPrefetchEveryGatherShows) {
  // A layer's gather takes 15 ms of its forward's 20.
  EXPECT_GT(run({.stage = 3, .prefetch = 0}, 2).step_ms, 960 + 31 * 15);
}

TEST(EmulatedZero, HoldsAsMuchAsTheStageSays) {
  const std::size_t all = 16 << 16, layer = 1 << 16;
  const EmulatedMemory one = run({.stage = 1}, 2).memory;
  EXPECT_EQ(one.parameters, all);
  EXPECT_EQ(one.gradients, all + all / kRanks);
  const EmulatedMemory two = run({.stage = 2, .reductions = 2}, 0.5).memory;
  EXPECT_EQ(two.parameters, all);
  EXPECT_LE(two.gradients, all / kRanks + 2 * layer);
  const EmulatedMemory three = run({.stage = 3, .prefetch = 2, .reductions = 2}, 0.5).memory;
  EXPECT_LE(three.parameters, all / kRanks + 3 * layer);
  EXPECT_LE(three.gradients, all / kRanks + 2 * layer);
}

TEST(EmulatedZero, GathersInTheOrderOfUse) {
  const std::vector<Moved> started = run({.stage = 3, .prefetch = 1}, 4).started;
  const ZeroUnits units = units_of(sixteen_layers());
  std::vector<std::size_t> layers;  // Layers of the first step's gathers.
  for (const Moved& moved : started) {
    if (moved.kind == 'g' && layers.size() < 31) layers.push_back(units.first_layer[moved.unit]);
  }
  for (std::size_t i = 0; i < kLayers; ++i) EXPECT_EQ(layers[i], i);
  // The last one is kept for backward.
  for (std::size_t i = kLayers; i < layers.size(); ++i) EXPECT_EQ(layers[i], 30 - i) << i;
}

/// Returns the gathers started in one step, whose gradients arrive at once or only after it.
std::size_t gathers_of_a_step(bool at_once) {
  const ZeroUnits units = units_of(sixteen_layers());
  const LayerVisits visits{units.layers()};
  const auto end = static_cast<std::int64_t>(2 * units.layers());
  TestAlarm alarm;
  IdealExchange network(alarm, 1e12);
  const auto parameters = gathered_parameters(units, network, 2);
  const auto step_on = [&](std::int64_t visit) {
    for (const std::size_t unit : units.of_layer[visits.layer_of(visit)]) {
      if (units.first_layer[unit] == visits.layer_of(visit)) parameters->stepped(unit, visit);
    }
  };
  for (std::int64_t visit = 0; visit < end; ++visit) {
    parameters->use(visit);
    parameters->leave(visit);
    if (at_once && !visits.is_forward(visit)) step_on(visit);
  }
  for (std::int64_t visit = end / 2; !at_once && visit < end; ++visit) step_on(visit);
  parameters->finish(end);
  return network.started.size();
}

// Otherwise a rank whose gradients arrive early waits forever for gathers that others never start.
TEST(EmulatedZero, InTheEndAllRanksHaveBegunTheSameGathers) {
  EXPECT_EQ(gathers_of_a_step(true), gathers_of_a_step(false));
}

TEST(EmulatedZero, NoLayerRunsOnWhatHasNotCome) {
  const LayerProfile profile = sixteen_layers();
  const ZeroUnits units = units_of(profile);
  for (const int stage : {1, 2, 3}) {
    TestAlarm alarm;
    IdealExchange network(alarm, 1e7);
    network.forgets = units.of_layer[5].front();
    EmulatedZero training(profile, units, {.compute = kCompute, .stage = stage}, network, alarm);
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
  const LayerProfile profile = profile_named("uniform:6x40K");
  for (const int stage : {1, 2, 3}) {
    test::LocalJob job(3);
    std::vector<double> sent(3);
    const auto errors = job.run([&](Rank rank, Communicator& c) {
      const ZeroUnits units = zero_units(plan_step(profile), rank, 3);
      const auto exchange =
          shard_exchange(test::shared(c), units.size(), {.gathers_in_any_order = true});
      SteadyAlarm alarm;
      EmulatedZero training(profile, units,
                            {.compute = milliseconds(3 + 2 * rank), .stage = stage, .prefetch = 1},
                            *exchange, alarm);
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

TEST(ZeroUnits, AreTheBucketsInEqualParts) {
  const LayerProfile profile = profile_named("resnet50");
  const StepPlan plan = plan_step(profile);
  const ZeroUnits units = zero_units(plan, 2, 3);
  ASSERT_EQ(units.size(), plan.buckets.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    EXPECT_GE(units.count(unit), plan.buckets[unit].count);
    EXPECT_LT(units.count(unit), plan.buckets[unit].count + 3);
    for (const std::size_t layer : {units.first_layer[unit], units.last_layer[unit]})
      EXPECT_EQ(std::ranges::count(units.of_layer[layer], unit), 1);
  }
}

TEST(LayerVisits, GoForthAndBack) {
  const LayerVisits visits{3};
  std::vector<std::size_t> layers;
  for (std::int64_t visit = 12; visit < 18; ++visit) layers.push_back(visits.layer_of(visit));
  EXPECT_EQ(layers, (std::vector<std::size_t>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(visits.step_of(14), 2);
  EXPECT_TRUE(visits.is_forward(14));
  EXPECT_FALSE(visits.is_forward(15));
  EXPECT_EQ(visits.forward_after(15, 2), 20);
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
}  // namespace gradwire

#include "gradwire/step/step_engine.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/emulation/emulated_training.h"
#include "tests/support/ideal_exchange.h"

namespace gradwire::step {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kElements = 1000;  ///< Elements of a unit: 4 ms at 1 MB/s.
constexpr double kRate = 1e6;

/// Records what the engine asks for.
class RecordingHost final : public StepHost {
 public:
  Gradients gradients(std::size_t unit) override {
    log.push_back("reduce " + std::to_string(unit));
    return {.whole = {.count = kElements}, .shard = {.count = kElements / 2}};
  }
  void reduced(std::size_t unit) override { log.push_back("reduced " + std::to_string(unit)); }
  bool step(std::size_t unit) override {
    log.push_back("step " + std::to_string(unit));
    return true;
  }
  Parameters parameters(std::size_t unit) override {
    log.push_back("gather " + std::to_string(unit));
    return {.whole = {.count = kElements}};
  }
  void release(std::size_t unit) override { released.push_back(unit); }

  std::vector<std::string> log;
  std::vector<std::size_t> released;
};

/// An engine of three units on two ranks.
struct Bench {
  explicit Bench(StepPolicy policy, exchange::ExchangeTraits traits = {})
      : network(alarm, kRate, 2, traits),
        engine(units(), with_two_ranks(policy), network, host, alarm) {}

  static std::vector<StepUnit> units() { return std::vector<StepUnit>(3, {.elements = kElements}); }
  static StepPolicy with_two_ranks(StepPolicy policy) {
    policy.ranks = 2;
    return policy;
  }

  void forward() {
    engine.begin_forward(true);
    for (std::size_t unit = 3; unit-- > 0;) {
      engine.before_block({unit});
      engine.after_block({unit});
    }
    engine.end_forward();
  }
  void backward(const std::vector<std::size_t>& order = {0, 1, 2}) {
    engine.begin_pass();
    for (const std::size_t unit : order) {
      engine.before_gradient(unit);
      engine.gradient_ready(unit);
    }
    engine.end_pass();
  }
  std::vector<std::string> taken() { return std::exchange(host.log, {}); }

  TestAlarm alarm;
  IdealExchange network;
  RecordingHost host;
  StepEngine engine;
};

using Log = std::vector<std::string>;

TEST(StepEngine, StartsReductionsInOrderWhateverBackwardCompletesFirst) {
  for (const int stage : {0, 1}) {
    std::vector<std::size_t> order{0, 1, 2};
    do {
      Bench bench({.stage = stage});
      bench.backward(order);
      EXPECT_EQ(bench.taken(), (Log{"reduce 0", "reduce 1", "reduce 2"}));
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST(StepEngine, StartsNothingBeforeTheEndWithoutOverlap) {
  Bench bench({.overlap = Overlap::none});
  bench.engine.begin_pass();
  for (const std::size_t unit : {0u, 1u, 2u}) bench.engine.gradient_ready(unit);
  EXPECT_EQ(bench.taken(), Log{});
  bench.engine.end_pass();
  EXPECT_EQ(bench.taken(),
            (Log{"reduce 0", "reduce 1", "reduce 2", "reduced 0", "reduced 1", "reduced 2"}));
}

TEST(StepEngine, CountsMissingGradientsAsZeroAtTheEnd) {
  Bench bench({.overlap = Overlap::backward});
  bench.backward({0, 2});
  EXPECT_EQ(bench.taken(),
            (Log{"reduce 0", "reduce 1", "reduce 2", "reduced 0", "reduced 1", "reduced 2"}));
  EXPECT_EQ(bench.network.passes, 1);
}

TEST(StepEngine, ABlockWaitsForItsOwnUnitAndStepsArrivedOnesMeanwhile) {
  Bench bench({});
  bench.backward();
  bench.engine.begin_step();
  EXPECT_TRUE(bench.engine.is_pending());
  bench.taken();
  bench.engine.before_block({2});  // The highest priority arrives first.
  EXPECT_EQ(bench.taken(), (Log{"reduced 2", "step 2"}));
  EXPECT_EQ(bench.alarm.now(), Time(milliseconds(4)));
  bench.alarm.await(Time(milliseconds(8)));
  bench.engine.before_block({0});
  EXPECT_EQ(bench.taken(), (Log{"reduced 1", "step 1", "reduced 0", "step 0"}));
  EXPECT_EQ(bench.alarm.now(), Time(milliseconds(12)));
  EXPECT_FALSE(bench.engine.is_pending());
}

TEST(StepEngine, StepsAtOnceWithoutOverlapWithForward) {
  Bench bench({.overlap = Overlap::backward});
  bench.backward();
  bench.taken();
  bench.engine.begin_step();
  EXPECT_EQ(bench.taken(), (Log{"step 2", "step 1", "step 0"}));
}

TEST(StepEngine, WaitsForAPassBeforeTheNextIfTheExchangeHasState) {
  Bench bench({.stage = 2}, {.has_state = true});
  bench.backward();
  EXPECT_EQ(bench.network.passes, 0);
  bench.engine.begin_pass();
  EXPECT_EQ(bench.network.passes, 1);
}

using Outcomes = std::vector<std::pair<exchange::StepOutcome, int>>;
constexpr auto kCommitted = exchange::StepOutcome::committed;
constexpr auto kAbandoned = exchange::StepOutcome::abandoned;

TEST(StepEngine, TellsTheExchangeOfAStepOnceItsMeansHaveArrived) {
  for (const int stage : {0, 1, 2, 3}) {
    Bench bench({.stage = stage}, {.has_state = true});
    for (int pass = 0; pass < 2; ++pass) {  // Accumulates.
      bench.forward();
      bench.backward();
    }
    bench.engine.begin_step();
    EXPECT_EQ(bench.network.steps, Outcomes{}) << stage;
    bench.forward();
    EXPECT_EQ(bench.network.steps, (Outcomes{{kCommitted, 2}})) << stage;
  }
}

TEST(StepEngine, AStepInBackwardIsCommittedAfterThePass) {
  Bench bench({.stage = 1}, {.has_state = true});
  bench.forward();
  bench.engine.begin_pass();
  bench.engine.begin_step();
  for (const std::size_t unit : {0u, 1u, 2u}) bench.engine.gradient_ready(unit);
  bench.alarm.await(Time(milliseconds(50)));
  bench.engine.poll();
  EXPECT_EQ(bench.network.steps, Outcomes{});
  bench.engine.end_pass();
  bench.engine.finish();
  EXPECT_EQ(bench.network.steps, (Outcomes{{kCommitted, 1}}));
}

TEST(StepEngine, AnAbandonedStepStepsNothing) {
  for (const int stage : {0, 1, 2, 3}) {
    Bench bench({.stage = stage}, {.has_state = true});
    bench.forward();
    bench.backward();
    bench.engine.abandon_step();
    EXPECT_EQ(bench.network.steps, (Outcomes{{kAbandoned, 1}})) << stage;
    EXPECT_FALSE(bench.engine.is_pending());
    for (const std::string& entry : bench.taken()) EXPECT_FALSE(entry.starts_with("step")) << entry;
    bench.forward();
    bench.backward();
    bench.engine.begin_step();
    bench.engine.finish();
    EXPECT_EQ(bench.network.steps, (Outcomes{{kAbandoned, 1}, {kCommitted, 2}})) << stage;
  }
}

TEST(StepEngine, AUnitIsReducedAgainOnlyAfterItsReductionOfThePassBefore) {
  Bench bench({.stage = 2});
  bench.backward();
  bench.taken();
  bench.engine.begin_pass();
  bench.engine.before_gradient(2);
  EXPECT_EQ(bench.taken(), (Log{"reduced 2"}));
}

TEST(StepEngine, HoldsNoMoreShardedGradientsThanItMay) {
  Bench bench({.stage = 2, .max_reductions = 1});
  bench.engine.begin_pass();
  bench.engine.before_gradient(0);
  bench.engine.gradient_ready(0);
  bench.engine.before_gradient(1);
  EXPECT_EQ(bench.taken(), (Log{"reduce 0", "reduced 0"}));
}

TEST(StepEngine, GathersUnitsInTheOrderOfForwardAfterAStep) {
  Bench bench({.stage = 1}, {.order = exchange::OperationOrder::by_kind});
  bench.forward();
  bench.backward();
  bench.engine.begin_step();
  bench.taken();
  bench.forward();
  EXPECT_EQ(bench.taken(), (Log{"reduced 2", "step 2", "gather 2", "reduced 1", "step 1",
                                "gather 1", "reduced 0", "step 0", "gather 0"}));
}

TEST(StepEngine, AnOptimizerThatCommunicatesStepsInOneOrder) {
  for (const int ms : {0, 20}) {
    Bench bench({.stage = 1, .optimizer_communicates = true});
    bench.forward();
    bench.backward();
    bench.alarm.await(Time(milliseconds(ms)));
    bench.taken();
    bench.engine.begin_step();
    Log steps;
    for (const std::string& entry : bench.taken()) {
      if (entry.starts_with("step")) steps.push_back(entry);
    }
    EXPECT_EQ(steps, (Log{"step 2", "step 1", "step 0"}));
  }
}

TEST(StepEngine, Stage3ReleasesBlocksAfterUse) {
  Bench bench({.stage = 3});
  bench.forward();
  bench.host.released.clear();
  bench.engine.begin_forward(true);
  bench.engine.before_block({2});
  bench.engine.after_block({2});
  EXPECT_EQ(bench.host.released, std::vector<std::size_t>{2});
}

TEST(StepEngine, ConsolidatedParametersStayUntilTheNextForwardInTraining) {
  Bench bench({.stage = 3});
  bench.engine.consolidate();
  bench.host.released.clear();
  bench.engine.begin_forward(false);
  bench.engine.before_block({2});
  bench.engine.after_block({2});
  bench.engine.end_forward();
  EXPECT_TRUE(bench.host.released.empty());
  bench.engine.begin_forward(true);
  EXPECT_EQ(bench.host.released.size(), 3u);
}

/// A random model: units of one to three layers each, some of them root units.
struct Model {
  workload::LayerProfile profile{.name = "random"};
  StepPlan plan;
};

Model random_model(Random& random, int stage) {
  Model model;
  const std::size_t layers = 2 + random.below(6);
  model.plan.needs.resize(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    model.profile.layers.push_back({.name = "layer",
                                    .forward = 1.0 + static_cast<double>(random.below(9)),
                                    .backward = 1.0 + static_cast<double>(random.below(9))});
  }
  workload::normalize_shares(model.profile);
  for (std::size_t layer = layers; layer > 0;) {
    const bool root = stage == 3 && random.below(4) == 0;
    const std::size_t span =
        stage == 3 && !root ? 1 : 1 + random.below(std::min<std::size_t>(3, layer));
    const std::size_t unit = model.plan.buckets.size();
    model.plan.buckets.push_back({.count = 1 + random.below(5000)});
    model.plan.is_root.push_back(root);
    model.plan.fragment_of.push_back(0);
    for (std::size_t i = 0; i < span; ++i) model.plan.needs[--layer].push_back(unit);
    model.plan.first_layer.push_back(layer);
  }
  return model;
}

/// Runs steps on a network of that rate. Returns the operations, as "kind unit".
std::vector<StartedOperation> operations_of(const Model& model,
                                            const emulation::EmulatedTrainingOptions& options,
                                            exchange::ExchangeTraits traits, double rate) {
  TestAlarm alarm;
  IdealExchange network(alarm, rate, options.policy.ranks, traits);
  emulation::UnitsInMemory units(model.plan, options.policy.stage, 1, options.policy.ranks, 1);
  emulation::EmulatedTraining training(model.profile, model.plan, options, units, network, alarm);
  for (int step = 0; step < 4; ++step) training.step();
  training.finish();
  return network.started;
}

/// Splits operations into the sequences that must be the same on all ranks.
std::map<std::string, std::vector<std::string>> sequences(
    const std::vector<StartedOperation>& operations, exchange::OperationOrder order) {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& [kind, unit, at] : operations) {
    std::string sequence;
    if (order != exchange::OperationOrder::all) sequence += kind;
    if (order == exchange::OperationOrder::by_unit && kind == 'g') sequence += std::to_string(unit);
    found[sequence].push_back(kind + std::to_string(unit));
  }
  return found;
}

// Ranks differ in speed. Where they start different operations, or in another order than the
// exchange needs, the group would hang.
TEST(StepEngine, RanksOfDifferentSpeedStartTheSameOperationsInTheSameOrder) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const int stage = static_cast<int>(random.below(4));
    const Model model = random_model(random, stage);
    const auto order = static_cast<exchange::OperationOrder>(random.below(3));
    const emulation::EmulatedTrainingOptions options{
        .compute = milliseconds(10 + random.below(100)),
        .accumulate = stage == 0 ? static_cast<int>(1 + random.below(2)) : 1,
        .policy = {.stage = stage,
                   .ranks = 2 + static_cast<int>(random.below(3)),
                   .overlap = static_cast<Overlap>(random.below(3)),
                   .max_reductions = 1 + random.below(4),
                   .prefetch_units = random.below(3),
                   .prefetch_elements = random.below(2) * 4000}};
    const exchange::ExchangeTraits traits{.order = order, .has_state = random.below(2) == 0};
    const auto slow = operations_of(model, options, traits, 2e5);
    for (const double rate : {1e6, 1e9}) {
      EXPECT_EQ(sequences(operations_of(model, options, traits, rate), order),
                sequences(slow, order))
          << "seed " << seed << ", stage " << stage;
    }
  }
}

}  // namespace
}  // namespace gradwire::step

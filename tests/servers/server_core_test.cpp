#include "gradwire/servers/server_core.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/servers/simulated_training.h"
#include "tests/support/error_of.h"
#include "tests/support/seeds.h"

namespace gradwire::servers::test {
namespace {

using gradwire::test::error_of;
using testing::HasSubstr;

struct Rule {
  std::string name;
  ServerPolicy policy;
};

std::vector<Rule> rules() {
  const RateRule inverse{RateRule::Kind::inverse};
  return {
      {"sync", {.workers = 3}},
      {"sync_first_of_4", {.workers = 4, .use = 0.7}},
      {"sync_first_of_4_with_grace", {.workers = 4, .use = 0.5, .grace = duration_of(0.3)}},
      {"sync_of_1", {.workers = 1}},
      {"sync_whole_steps", {.workers = 3, .whole_steps = true}},
      {"sync_beside_async", {.workers = 3, .asynchronous = {false, true}}},
      {"ssp_0", {.mode = Mode::ssp, .workers = 3}},
      {"ssp_2", {.mode = Mode::ssp, .workers = 4, .staleness = 2, .rate = inverse}},
      {"async", {.mode = Mode::async, .workers = 3, .rate = inverse}},
      {"async_power", {.mode = Mode::async, .workers = 2, .rate = {RateRule::Kind::power, 0.5}}}};
}

class EveryRule : public testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Of, EveryRule, testing::ValuesIn(rules()),
                         [](const auto& given) { return given.param.name; });

TEST_P(EveryRule, HoldsInRandomRuns) {
  const gradwire::test::SeedRange seeds = gradwire::test::seeds_of_shard(0, 1, 5'000, 150'000);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SimulatedTraining training({.policy = GetParam().policy,
                                .steps = 8,
                                .seed = seed,
                                .repeats = seed % 2 == 1,
                                .lost_before = std::nullopt,
                                .pauses = seed % 4 >= 2});
    ASSERT_EQ(training.run(), "") << "seed " << seed;
  }
}

TEST_P(EveryRule, HoldsWhateverWorkerIsLostAndWhen) {
  enum { kNobodyComes, kItRejoins, kAllPause };
  for (const int then : {kNobodyComes, kItRejoins, kAllPause}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Scenario scenario{.policy = GetParam().policy,
                        .steps = 3,
                        .seed = seed,
                        .repeats = seed % 2 == 1,
                        .lost_before = std::nullopt,
                        .rejoins = then == kItRejoins,
                        .pauses = then == kAllPause};
      SimulatedTraining whole(scenario);
      ASSERT_EQ(whole.run(), "");
      for (int event = 0; event < whole.events(); ++event) {
        scenario.lost_before = event;
        ASSERT_EQ(SimulatedTraining(scenario).run(), "")
            << "seed " << seed << ", lost before event " << event << ", then " << then;
      }
    }
  }
}

/// Frees gradients, and does not step.
class NoStore final : public ShardStore {
 public:
  void apply(std::size_t, std::span<const GradientId> gradients, double) override {
    applied.emplace_back(gradients.begin(), gradients.end());
  }
  void drop(GradientId gradient) override { dropped.push_back(gradient); }

  std::vector<std::vector<GradientId>> applied;
  std::vector<GradientId> dropped;
};

/// Answers as "worker:version".
std::vector<std::string> answers(ServerCore& core) {
  std::vector<std::string> texts;
  for (const Answer& answer : core.take_answers()) {
    texts.push_back(std::to_string(answer.worker) + ":" + std::to_string(answer.version));
  }
  return texts;
}

TEST(ServerCore, AddsInTheOrderOfWorkersWhoeverWasFirst) {
  NoStore store;
  ServerCore core({.workers = 3}, 1, store);
  for (const Rank worker : {2, 0, 1}) {
    core.on_push({.worker = worker, .gradient = 10 + static_cast<GradientId>(worker)});
  }
  EXPECT_THAT(store.applied, testing::ElementsAre(testing::ElementsAre(10, 11, 12)));
  EXPECT_EQ(core.version(0), 1);
}

TEST(ServerCore, DropsWhatIsLateAndCountsIt) {
  NoStore store;
  ServerCore core({.workers = 4, .use = 0.75}, 1, store);
  for (const Rank worker : {3, 1, 0, 2}) {
    core.on_push({.worker = worker, .gradient = static_cast<GradientId>(worker)});
  }
  EXPECT_THAT(store.applied, testing::ElementsAre(testing::ElementsAre(0, 1, 3)));
  EXPECT_THAT(store.dropped, testing::ElementsAre(2));
  EXPECT_EQ(core.dropped(2).late, 1);
  // The late worker goes on with the step of the others.
  core.on_pull(2, 0, 1);
  EXPECT_THAT(answers(core), testing::ElementsAre("2:1"));
  core.on_push({.worker = 2, .clock = 1, .base = 1, .gradient = 4});
  EXPECT_EQ(core.dropped(2).late, 1);
}

TEST(ServerCore, AStepWithEnoughGradientsWaitsForMoreUntilItsGraceIsOver) {
  NoStore store;
  ServerCore core({.workers = 3, .use = 0.6, .grace = Duration(1)}, 1, store);
  core.on_push({.worker = 0, .gradient = 10});
  EXPECT_FALSE(core.waits_for_more(0));
  core.on_grace_over(0);  // There are too few.
  core.on_push({.worker = 1, .gradient = 11});
  EXPECT_TRUE(core.waits_for_more(0));
  EXPECT_TRUE(store.applied.empty());
  core.on_grace_over(0);
  EXPECT_THAT(store.applied, testing::ElementsAre(testing::ElementsAre(10, 11)));
  core.on_push({.worker = 2, .gradient = 12});
  EXPECT_THAT(store.dropped, testing::ElementsAre(12));
  // The last worker ends the next one's grace, which has begun anew.
  for (const Rank worker : {0, 1}) core.on_push({.worker = worker, .clock = 1, .base = 1});
  EXPECT_TRUE(core.waits_for_more(0));
  core.on_push({.worker = 2, .clock = 1, .base = 1});
  EXPECT_EQ(core.version(0), 2);
}

TEST(ServerCore, ALateGradientThatIsRepeatedCountsOnce) {
  NoStore store;
  ServerCore core({.workers = 4, .use = 0.75}, 1, store);
  for (const Rank worker : {3, 1, 0, 2, 2}) core.on_push({.worker = worker});
  EXPECT_EQ(core.dropped(2).late, 1);
  EXPECT_EQ(core.dropped(2).repeated, 1);
}

TEST(ServerCore, AWorkerWaitsForTheSlowestThatLives) {
  NoStore store;
  ServerCore core({.mode = Mode::ssp, .workers = 2, .staleness = 1}, 1, store);
  core.on_push({.worker = 0});
  core.on_pull(0, 0, 1);
  EXPECT_THAT(answers(core), testing::ElementsAre("0:1"));
  core.on_push({.worker = 0, .clock = 1, .base = 1});
  core.on_pull(0, 0, 2);
  EXPECT_THAT(answers(core), testing::IsEmpty());
  core.on_lost(1);
  EXPECT_THAT(answers(core), testing::ElementsAre("0:2"));
}

TEST(ServerCore, NobodyWaitsForAWorkerThatPauses) {
  NoStore store;
  ServerCore core({.mode = Mode::ssp, .workers = 2, .staleness = 0}, 1, store);
  core.on_push({.worker = 0});
  core.on_push({.worker = 1});
  core.on_push({.worker = 0, .clock = 1, .base = 1});
  core.on_pull(0, 0, 2);
  EXPECT_THAT(answers(core), testing::IsEmpty());
  core.on_pause(1);
  EXPECT_THAT(answers(core), testing::ElementsAre("0:3"));
  core.on_pause(0);
  EXPECT_EQ(core.resume(), 2);
  core.on_push({.worker = 1, .clock = 2, .base = 3});
  core.on_pull(1, 0, 3);
  EXPECT_THAT(answers(core), testing::IsEmpty());  // It waits for the other one again.
}

TEST(ServerCore, AStepGoesOnWithoutAWorkerThatPauses) {
  NoStore store;
  ServerCore core({.workers = 2}, 1, store);
  core.on_push({.worker = 0});
  EXPECT_EQ(core.version(0), 0);
  core.on_pause(1);
  EXPECT_EQ(core.version(0), 1);
  core.on_pause(0);
  core.resume();
  core.on_push({.worker = 1, .clock = 1, .base = 1});
  EXPECT_EQ(core.version(0), 1);
  core.on_push({.worker = 0, .clock = 1, .base = 1});
  EXPECT_EQ(core.version(0), 2);
}

TEST(ServerCore, AWholeStepWaitsForTheLastGradientOfItsUnits) {
  NoStore store;
  ServerCore core({.workers = 2, .whole_steps = true}, 2, store);
  const auto push = [&](Rank worker, std::size_t unit) {
    core.on_push(
        {.worker = worker, .unit = unit, .gradient = 10 * unit + static_cast<GradientId>(worker)});
    core.on_pull(worker, unit, 1);
  };
  push(0, 1), push(1, 1), push(1, 0);
  EXPECT_TRUE(store.applied.empty());
  EXPECT_THAT(answers(core), testing::IsEmpty());
  push(0, 0);
  EXPECT_THAT(store.applied,
              testing::ElementsAre(testing::ElementsAre(0, 1), testing::ElementsAre(10, 11)));
  EXPECT_THAT(answers(core), testing::UnorderedElementsAre("0:1", "0:1", "1:1", "1:1"));
}

TEST(ServerCore, AnAsynchronousUnitStepsBesideASynchronousOne) {
  NoStore store;
  ServerCore core({.workers = 2, .asynchronous = {false, true}}, 2, store);
  core.on_push({.worker = 0, .unit = 0, .gradient = 1});
  core.on_push({.worker = 0, .unit = 1, .gradient = 2});
  EXPECT_THAT(store.applied, testing::ElementsAre(testing::ElementsAre(2)));
  core.on_pull(0, 0, 1);
  core.on_pull(0, 1, 1);
  EXPECT_THAT(answers(core), testing::ElementsAre("0:1"));
  core.on_push({.worker = 1, .unit = 1, .gradient = 3});
  core.on_push({.worker = 1, .unit = 0, .gradient = 4});
  EXPECT_THAT(store.applied, testing::ElementsAre(testing::ElementsAre(2), testing::ElementsAre(3),
                                                  testing::ElementsAre(1, 4)));
  EXPECT_THAT(answers(core), testing::ElementsAre("0:1"));
  EXPECT_EQ(core.staleness_of_unit(0).max(), 0);
  EXPECT_EQ(core.staleness_of_unit(1).max(), 1);
}

TEST(ServerCore, APartOfALostWorkersGradientIsInNoWholeStep) {
  NoStore store;
  ServerCore core({.workers = 2, .whole_steps = true}, 2, store);
  core.on_push({.worker = 0, .unit = 1, .gradient = 7});
  core.on_push({.worker = 1, .unit = 1, .gradient = 8});
  core.on_lost(0);
  EXPECT_THAT(store.dropped, testing::ElementsAre(7));
  core.on_push({.worker = 1, .unit = 0, .gradient = 9});
  EXPECT_THAT(store.applied,
              testing::ElementsAre(testing::ElementsAre(9), testing::ElementsAre(8)));
}

/// With W workers that push and pull at once, W - 1 others push between two pushes of one, whatever
/// their speeds: the mean over all is W - 1.
TEST(ServerCore, MeanStalenessOfEqualPushesIsThatOfTheOtherWorkers) {
  NoStore store;
  constexpr int kWorkers = 4, kRounds = 1000;
  ServerCore core({.mode = Mode::async, .workers = kWorkers}, 1, store);
  Random random(5);
  std::vector<std::int64_t> clocks(kWorkers), versions(kWorkers);
  for (int push = 0; push < kWorkers * kRounds; ++push) {
    const auto slow = random.one_in(5) ? 0 : random.below(kWorkers);
    core.on_push({static_cast<Rank>(slow), 0, clocks[slow]++, versions[slow], 0});
    versions[slow] = core.version(0);
  }
  EXPECT_NEAR(core.staleness_of_unit(0).mean(), kWorkers - 1, 0.01 * (kWorkers - 1));
  Staleness all;
  for (Rank worker = 0; worker < kWorkers; ++worker) all.add(core.staleness_of_worker(worker));
  EXPECT_EQ(all.counts(), core.staleness_of_unit(0).counts());
  EXPECT_EQ(all.count(), kWorkers * kRounds);
}

TEST(ServerCore, LogsWhatItApplies) {
  NoStore store;
  std::vector<Applied> log;
  ServerCore core({.mode = Mode::async, .workers = 2}, 2, store,
                  [&](const Applied& applied) { log.push_back(applied); });
  core.on_push({.worker = 1, .unit = 1});
  core.on_push({.worker = 0, .unit = 1});
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[1].worker, 0);
  EXPECT_EQ(log[1].unit, 1u);
  EXPECT_EQ(log[1].base, 0);
  EXPECT_EQ(log[1].version, 1);
}

TEST(ServerCore, LogsWhatBecomesOfEachGradientOfAStep) {
  NoStore store;
  std::vector<Applied> log;
  ServerCore core({.mode = Mode::sync, .workers = 3, .use = 0.6}, 1, store,
                  [&](const Applied& each) { log.push_back(each); });
  core.on_push({.worker = 2, .gradient = 7, .rate = 0.5});
  core.on_push({.worker = 0, .gradient = 8, .rate = 0.5});
  core.on_push({.worker = 1, .gradient = 9, .rate = 0.5});
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0].worker, 0);
  EXPECT_EQ(log[0].outcome, Outcome::added);
  EXPECT_EQ(log[1].gradient, 7u);
  EXPECT_EQ(log[1].outcome, Outcome::stepped);
  EXPECT_EQ(log[1].factor, 0.5);
  EXPECT_EQ(log[2].worker, 1);
  EXPECT_EQ(log[2].outcome, Outcome::dropped);
}

TEST(ServerCore, RefusesNumbersThatNoWorkerHas) {
  NoStore store;
  ServerCore core({.mode = Mode::ssp, .workers = 2}, 3, store);
  const auto push = [&](const Push& what) { return error_of([&] { core.on_push(what); }); };
  EXPECT_THAT(push({.worker = 2}), HasSubstr("worker 2 is none of 2"));
  EXPECT_THAT(push({.worker = -1}), HasSubstr("worker -1 is none of 2"));
  EXPECT_THAT(push({.worker = 0, .unit = 3}), HasSubstr("names unit 3 of 3"));
  EXPECT_THAT(push({.worker = 0, .clock = 1}), HasSubstr("it may push clock 0"));
  EXPECT_THAT(push({.worker = 0, .base = 1}), HasSubstr("the unit has version 0"));
  EXPECT_THAT(push({.worker = 0, .base = -1}), HasSubstr("version -1"));
  EXPECT_THAT(error_of([&] { core.on_pull(1, 0, 1); }), HasSubstr("has not pushed clock 0"));
  EXPECT_THAT(error_of([&] { core.on_pull(1, 7, 0); }), HasSubstr("names unit 7 of 3"));
  EXPECT_TRUE(store.applied.empty());
  EXPECT_EQ(core.version(0), 0);
}

TEST(ServerPolicy, RefusesWhatHasNoEffect) {
  const auto refusal = [](const ServerPolicy& policy) { return error_of([&] { check(policy); }); };
  EXPECT_THAT(refusal({.workers = 4, .use = 0.95}), HasSubstr("it takes at least 20 workers"));
  EXPECT_THAT(refusal({.workers = 3, .use = 0.75}), HasSubstr("it takes at least 4 workers"));
  EXPECT_EQ(refusal({.workers = 4, .use = 0.75}), "no error");
  EXPECT_EQ(refusal({.workers = 20, .use = 0.95}), "no error");
  EXPECT_THAT(refusal({.workers = 4, .use = 0}), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(refusal({.mode = Mode::async, .workers = 4, .use = 0.5}),
              HasSubstr("mode async drops no gradients"));
  EXPECT_THAT(refusal({.mode = Mode::ssp, .workers = 4, .staleness = -1}),
              HasSubstr("must not be negative"));
  EXPECT_THAT(refusal({.workers = 4, .grace = Duration(1)}), HasSubstr("sync with use below 1"));
  EXPECT_THAT(refusal({.workers = 4, .use = 0.5, .grace = Duration(-1)}), HasSubstr("negative"));
  EXPECT_THAT(refusal({.workers = 0}), HasSubstr("at least one worker"));
  EXPECT_THAT(refusal({.workers = 4, .use = 0.75, .whole_steps = true}),
              HasSubstr("not mode sync with use 0.75"));
  EXPECT_THAT(refusal({.mode = Mode::async, .workers = 4, .whole_steps = true}),
              HasSubstr("not mode async"));
  EXPECT_THAT(refusal({.mode = Mode::async, .workers = 4, .asynchronous = {true}}),
              HasSubstr("with mode async and use 1 none is synchronous"));
  EXPECT_THAT(refusal({.workers = 4, .whole_steps = true, .asynchronous = {false, true}}),
              HasSubstr("not part of a step of all units"));
  EXPECT_EQ(refusal({.workers = 4, .asynchronous = {false, true}}), "no error");
}

TEST(ServerPolicy, ModesAsText) {
  for (const std::string text : {"sync", "ssp:0", "ssp:12", "async"}) {
    ServerPolicy policy;
    set_mode(policy, text);
    EXPECT_EQ(mode_text(policy), text);
  }
  const auto refusal = [](const std::string& text) {
    ServerPolicy policy;
    return error_of([&] { set_mode(policy, text); });
  };
  EXPECT_THAT(refusal("asinc"), HasSubstr("did you mean \"async\"?"));
  EXPECT_THAT(refusal("sync:1"), HasSubstr("mode sync has no staleness"));
  for (const std::string text : {"ssp", "ssp:", "ssp:-1", "ssp:1x", "ssp:99999999999999999999"}) {
    EXPECT_THAT(refusal(text), HasSubstr("such as ssp:3")) << text;
  }
}

TEST(RateRule, FactorsOfStaleness) {
  EXPECT_EQ(RateRule{}.factor(7), 1);
  const RateRule inverse{RateRule::Kind::inverse};
  EXPECT_EQ(inverse.factor(0), 1);
  EXPECT_EQ(inverse.factor(4), 0.25);
  const RateRule power{RateRule::Kind::power, 0.5};
  EXPECT_EQ(power.factor(3), 0.5);
}

TEST(Staleness, Quantiles) {
  Staleness staleness;
  EXPECT_EQ(staleness.mean(), 0);
  EXPECT_EQ(staleness.quantile(0.99), 0);
  for (int i = 0; i < 99; ++i) staleness.add(1);
  staleness.add(5);
  EXPECT_EQ(staleness.quantile(0.5), 1);
  EXPECT_EQ(staleness.quantile(0.99), 1);
  EXPECT_EQ(staleness.quantile(1), 5);
  EXPECT_EQ(staleness.max(), 5);
  EXPECT_EQ(staleness.mean(), 1.04);
}

}  // namespace
}  // namespace gradwire::servers::test

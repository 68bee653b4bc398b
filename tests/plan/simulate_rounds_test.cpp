#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/plan/servers_advice.h"
#include "gradwire/plan/simulate/failures.h"
#include "gradwire/plan/simulate/server_training.h"

namespace gradwire::plan {
namespace {

// --- parameter servers ---

ServerModel servers(int workers, int count) {
  ServerModel model{.policy = {.workers = workers}, .servers = count};
  model.bytes = model.pull_bytes = 1e8;
  model.worker_rate = model.server_rate = 1e9;
  model.latency = 1e-4;
  model.compute = {0.2, 0};
  return model;
}

TEST(SimulateServers, OneServerIsWhatTheTextbookCorrectsTo) {
  // 2 (L + (P - 1) T') with one root link; here the root is no worker: 2 (L + P T').
  const ServerTraining one = simulate_servers(servers(8, 1), 20, 1);
  EXPECT_NEAR(one.step, 0.2 + 2 * (1e-4 + 8 * 0.1), 1e-9);
  // The number of servers is that of workers: each port carries as much as a worker's.
  const ServerTraining many = simulate_servers(servers(8, 8), 20, 1);
  EXPECT_NEAR(many.step, 0.2 + 2 * (1e-4 + 0.1), 1e-9);
  EXPECT_NEAR(many.updates_per_second, 8 / many.step, 1e-9);
}

TEST(SimulateServers, AsynchronousWorkersDoNotWaitForStragglers) {
  ServerModel model = servers(16, 16);
  model.compute.sigma = 0.5;
  const ServerTraining together = simulate_servers(model, 200, 1);
  model.policy.mode = servers::Mode::async;
  const ServerTraining apart = simulate_servers(model, 200, 1);
  EXPECT_GT(apart.updates_per_second, 1.5 * together.updates_per_second);
  EXPECT_EQ(together.staleness, 0);
  // Between a worker's pull and push, each of the others pushes once on average.
  EXPECT_NEAR(apart.staleness, 15, 0.5);
  EXPECT_GE(apart.max_staleness, 16);
}

TEST(SimulateServers, AFullPortDecidesHowManyUpdatesThereAre) {
  // Operational analysis: at most 1 / S with S = G / (k B) at the bottleneck.
  ServerModel model = servers(32, 2);
  model.policy.mode = servers::Mode::async;
  const ServerTraining found = simulate_servers(model, 100, 1);
  EXPECT_NEAR(found.updates_per_second, 2 * 1e9 / 1e8, 0.2);
  EXPECT_NEAR(found.server_busy, 1, 0.02);
}

TEST(SimulateServers, BoundedStalenessIsBetweenTheTwo) {
  ServerModel model = servers(8, 8);
  model.bytes = model.pull_bytes = 1e6;
  model.compute.sigma = 0.8;
  model.policy.mode = servers::Mode::ssp;
  double before = simulate_servers(model, 300, 1).updates_per_second;
  for (const std::int64_t staleness : {1, 3, 10}) {
    model.policy.staleness = staleness;
    const ServerTraining found = simulate_servers(model, 300, 1);
    EXPECT_GT(found.updates_per_second, 1.05 * before) << staleness;
    before = found.updates_per_second;
  }
  model.policy.mode = servers::Mode::async;
  EXPECT_GT(simulate_servers(model, 300, 1).updates_per_second, before);
}

TEST(SimulateServers, ASlowWorkerPushesLessOften) {
  ServerModel model = servers(4, 4);
  model.bytes = model.pull_bytes = 1e3;
  model.compute.sigma = 0;
  const double all = simulate_servers(model, 100, 1).updates_per_second;
  model.policy.mode = servers::Mode::async;
  model.times.slow = {{2, {.factor = 4}}};
  const ServerTraining found = simulate_servers(model, 400, 1);
  EXPECT_NEAR(found.updates_per_second, all * 3.25 / 4, 0.02 * all);
  EXPECT_NEAR(found.staleness, 3, 0.05);
  model.times.slow = {{2, {.factor = 41, .share = 0.1}}};
  EXPECT_NEAR(simulate_servers(model, 4000, 1).updates_per_second, all * 3.2 / 4, 0.05 * all);
  model.times.slow = {{4, {.factor = 2}}};
  EXPECT_THROW(simulate_servers(model, 10, 1), Exception);
}

TEST(SimulateServers, GroupsAreAsFastAsTheirSlowestMember) {
  ServerModel model = servers(2, 1);
  model.policy.mode = servers::Mode::async;
  model.members = 4;
  model.times.slow = {{6, {.factor = 3}}};
  model.inside = inside_of_group(4, 1e8, 1e9, 1e-4);
  EXPECT_NEAR(model.inside, 2 * 3 * (1e-4 + 0.025), 1e-9);
  model.server_rate = 1e12;  // The members' ports decide, of which each sends a fourth.
  const double apart = 0.2 + model.inside + 2 * (1e-4 + 0.025);
  const ServerTraining found = simulate_servers(model, 1000, 1);
  EXPECT_NEAR(found.updates_per_second, 1 / apart + 1 / (apart + 0.4), 0.02);
  EXPECT_NEAR(found.staleness, 1, 0.01);
  model.times.slow = {{8, {.factor = 3}}};
  EXPECT_THROW(simulate_servers(model, 10, 1), Exception);
}

TEST(SimulateServers, PushesAndPullsHaveSizesOfTheirOwn) {
  ServerModel model = servers(8, 1);
  model.bytes = 1e8 / 4;
  model.pull_bytes = 1e8 / 2;
  EXPECT_NEAR(simulate_servers(model, 20, 1).step, 0.2 + 2e-4 + 8 * (0.025 + 0.05), 1e-9);
}

/// A worker that pulls once in n pushes has, at the last of them, n - 1 steps of all on top.
TEST(SimulateServers, RarePullsAddStaleness) {
  ServerModel model = servers(4, 4);
  model.bytes = model.pull_bytes = 1e3;
  model.policy.mode = servers::Mode::async;
  model.compute.sigma = 0.3;
  EXPECT_NEAR(simulate_servers(model, 2000, 1).staleness, 3, 0.05);
  model.pull_every = 3;
  EXPECT_NEAR(simulate_servers(model, 2000, 1).staleness, 3 + 4 * (0 + 1 + 2) / 3.0, 0.05);
}

/// The maximum of n exponential times has the mean of one times 1 + 1/2 + ... + 1/n.
TEST(SimulateServers, StepsOfExponentialPassesTakeTheSlowest) {
  ServerModel model = servers(8, 8);
  model.bytes = model.pull_bytes = 1;
  model.latency = 0;
  model.times.exponential = true;
  double harmonic = 0;
  for (int n = 1; n <= 8; ++n) harmonic += 1.0 / n;
  const double step = simulate_servers(model, 20'000, 1).step;
  EXPECT_NEAR(step, harmonic * model.compute.median, 0.02 * step);
}

TEST(SimulateServers, TheFirstGradientsMakeAStep) {
  ServerModel model = servers(8, 8);
  model.bytes = model.pull_bytes = 1e6;
  model.compute.sigma = 0.8;
  const ServerTraining whole = simulate_servers(model, 300, 1);
  EXPECT_EQ(whole.late, 0);
  model.policy.use = 0.75;
  const ServerTraining most = simulate_servers(model, 300, 1);
  EXPECT_LT(most.step, 0.8 * whole.step);
  EXPECT_GT(most.late, 0.1);
  EXPECT_EQ(most.max_staleness, 0);
  model.policy.use = 0.95;
  EXPECT_THROW(simulate_servers(model, 300, 1), Exception);
}

TEST(ServersAdvice, NamesTheWorkerThatHoldsAllOthers) {
  servers::ServerPolicy policy{.mode = servers::Mode::ssp, .workers = 4, .staleness = 3};
  const auto advice = [&](std::vector<double> compute) {
    return advice_on_slow_worker(policy, compute);
  };
  EXPECT_THAT(advice({1, 1, 1, 4}),
              testing::AllOf(testing::HasSubstr("worker 3 computes 4.0 times as long"),
                             testing::HasSubstr("mode ssp:3"),
                             testing::HasSubstr("3.2 times as many updates"),  // 3.25 of 4 / 4.
                             testing::HasSubstr("local_steps")));
  EXPECT_EQ(advice({1, 1, 1, 1.5}), "");
  EXPECT_EQ(advice({1, 1, 1, 0.1}), "") << "one that is fast holds nobody";
  EXPECT_NE(advice({1, 2}), "");
  EXPECT_EQ(advice({5}), "");
  EXPECT_EQ(advice({1, 0, 4}), "") << "the pace of one is not known";
  policy.mode = servers::Mode::async;
  EXPECT_EQ(advice({1, 1, 1, 4}), "");
}

TEST(ServersAdvice, KnowsTheMeanOfARandomlySlowWorker) {
  servers::ServerPolicy policy{.mode = servers::Mode::ssp, .workers = 3};
  emulation::PassTimes times{.slow = {{2, {.factor = 5, .share = 0.5}}}};
  EXPECT_THAT(advice_on_slow_worker(policy, times), testing::HasSubstr("worker 2 computes 3.0"));
  EXPECT_EQ(advice_on_slow_worker(policy, emulation::PassTimes()), "");
  policy.workers = 2;
  EXPECT_THAT(advice_on_slow_worker(policy, times, 2), testing::HasSubstr("worker 1 computes"));
}

// --- failures ---

/// Simulates days of training with random failures; returns the useful share.
double played(const FailureModel& model, double interval, std::uint64_t seed) {
  Random random(seed);
  const double rate = model.failures_per_day / 86'400;
  double now = 0, useful = 0;
  const auto next_failure = [&] { return now - std::log(1 - random.unit()) / rate; };
  double failure = next_failure();
  while (now < 86'400.0 * 2000) {
    if (now + interval + model.checkpoint <= failure) {
      now += interval + model.checkpoint;
      useful += interval;
      continue;
    }
    now = failure;
    // A restart may fail too, and then starts over.
    for (failure = next_failure(); failure < now + model.restart; failure = next_failure())
      now = failure;
    now += model.restart;
  }
  return useful / now;
}

TEST(FailureCost, IsWhatDrawnFailuresGive) {
  for (const FailureModel& model : {FailureModel{1, 30, 120}, FailureModel{50, 60, 300}}) {
    const FailureCost best = failure_cost(model);
    EXPECT_NEAR(best.useful_share, played(model, best.interval, 7), 0.01);
    EXPECT_NEAR(failure_cost(model, 3 * best.interval).useful_share,
                played(model, 3 * best.interval, 8), 0.015);
    // Other intervals are worse; the best one is near Young's.
    EXPECT_LT(failure_cost(model, 1.3 * best.interval).useful_share, best.useful_share);
    EXPECT_LT(failure_cost(model, best.interval / 1.3).useful_share, best.useful_share);
    const double young = std::sqrt(2 * model.checkpoint * 86'400 / model.failures_per_day);
    EXPECT_NEAR(best.interval, young, 0.15 * young);
  }
  EXPECT_EQ(failure_cost({}).useful_share, 1);
}

}  // namespace
}  // namespace gradwire::plan

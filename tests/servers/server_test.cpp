#include "gradwire/servers/server.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/servers/sum_over_servers.h"
#include "tests/servers/served_job.h"
#include "tests/support/error_of.h"

/// Servers and workers over real sockets.
namespace gradwire::servers::test {
namespace {

using gradwire::test::draw_gradient;
using gradwire::test::error_of;
using gradwire::test::expect_no_errors;
using gradwire::test::lend;
using testing::HasSubstr;

using Model = std::vector<std::vector<float>>;  ///< Values by unit.

std::vector<exchange::UnitShape> three_units() {
  return {{.count = 8}, {.count = 60'000}, {.count = 1'200}};
}

ServedLayout layout_of(const Placement& placement, ServerPolicy policy) {
  policy.workers = placement.workers;
  return {placement, policy, three_units()};
}

Model zeros(const std::vector<exchange::UnitShape>& units) {
  Model model;
  for (const auto& unit : units) model.emplace_back(unit.count);
  return model;
}

std::vector<float> gradient_of(Rank worker, std::size_t unit, std::size_t count, int step) {
  return draw_gradient(count, static_cast<std::uint64_t>(worker * 1'000'000 + step * 1'000) + unit);
}

/// One step of a worker: pushes a gradient of each unit, last first, and pulls its values.
void step(ServedExchange& exchange, Model& model, Rank worker, int number) {
  Model gradients;
  for (std::size_t unit = 0; unit < model.size(); ++unit) {
    gradients.push_back(gradient_of(worker, unit, model[unit].size(), number));
  }
  std::vector<Work> works;
  for (std::size_t unit = model.size(); unit-- > 0;) {
    works.push_back(exchange.reduce_scatter(unit, lend(gradients[unit]), {}, 0));
  }
  for (std::size_t unit = 0; unit < model.size(); ++unit) {
    works.push_back(exchange.all_gather(unit, {}, lend(model[unit]), 0));
  }
  for (const Work& work : works) work.wait();
}

/// Data parallelism with the same optimizer.
Model averaged(int workers, int steps) {
  gradwire::test::LocalJob job(workers, {.algorithm = "all_reduce=exchange"});
  std::vector<SteppedValues> units;
  for (const auto& unit : three_units()) units.emplace_back(unit.count);
  Model model;
  expect_no_errors(job.run([&](Rank rank, Communicator& communicator) {
    std::vector<SteppedValues> mine = units;
    for (int number = 0; number < steps; ++number) {
      for (std::size_t unit = 0; unit < mine.size(); ++unit) {
        auto mean = gradient_of(rank, unit, mine[unit].values.size(), number);
        communicator.all_reduce(lend(mean), ReduceOp::mean).wait();
        mine[unit].step(mean.data(), 1);
      }
    }
    if (rank != 0) return;
    for (const SteppedValues& unit : mine) model.push_back(unit.values);
  }));
  return model;
}

std::size_t bytes_of(const std::vector<exchange::UnitShape>& units) {
  std::size_t count = 0;
  for (const auto& unit : units) count += unit.count;
  return count * sizeof(float);
}

struct Setting {
  int workers, servers;
  bool beside;
};

class Synchronous : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(ServedJob, Synchronous,
                         testing::Values(Setting{4, 1, false}, Setting{4, 2, false},
                                         Setting{4, 4, false}, Setting{1, 2, false},
                                         Setting{4, 4, true}, Setting{3, 1, true},
                                         Setting{1, 1, true}),
                         [](const auto& given) {
                           const Setting& setting = given.param;
                           return fmt::format("{}_workers_{}_servers{}", setting.workers,
                                              setting.servers, setting.beside ? "_beside" : "");
                         });

constexpr int kSteps = 10;

TEST_P(Synchronous, HasTheBitsOfDataParallelism) {
  const auto [workers, servers, beside] = GetParam();
  ServedJob job(layout_of({workers, servers, beside}, {}));
  std::vector<Model> models(static_cast<std::size_t>(workers), zeros(three_units()));
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model& model = models[static_cast<std::size_t>(worker)];
    for (int number = 0; number < kSteps; ++number) step(exchange, model, worker, number);
  }));
  const Model expected = averaged(workers, kSteps);
  for (const Model& model : models) EXPECT_EQ(model, expected);
  for (const ServerReport& report : job.reports()) {
    EXPECT_EQ(report.updates(), std::int64_t{workers} * kSteps * 3);
    EXPECT_EQ(report.staleness().max(), 0);
  }
}

TEST_P(Synchronous, SendsEachGradientAndEachValueOnce) {
  const auto [workers, servers, beside] = GetParam();
  ServedJob job(layout_of({workers, servers, beside}, {}));
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int number = 0; number < kSteps; ++number) step(exchange, model, worker, number);
  }));
  const std::size_t model = bytes_of(three_units());
  const auto k = static_cast<std::size_t>(servers), w = static_cast<std::size_t>(workers);
  const std::size_t requests = (3 * kSteps + 2) * sizeof(Request);  // Also hello and leave.
  const std::size_t replies = (3 * kSteps + 1) * sizeof(Reply);
  for (Rank rank = 0; rank < job.layout().placement.ranks(); ++rank) {
    const bool works = rank < workers;
    const bool serves = beside ? rank < servers : !works;
    // A rank that does both keeps its own part.
    const std::size_t itself = works && serves ? 1 : 0;
    std::size_t expected = 0;
    if (works) expected += (k - itself) * (kSteps * model / k + requests);
    if (serves) expected += (w - itself) * (kSteps * model / k + replies);
    EXPECT_EQ(job.job().on(rank).payload_bytes_sent(), expected) << rank;
  }
}

TEST(ServedJob, WholeStepsHaveTheBitsOfDataParallelism) {
  for (const bool beside : {false, true}) {
    ServedJob job(layout_of({3, 2, beside}, {.whole_steps = true}));
    std::vector<Model> models(3, zeros(three_units()));
    expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
      Model& model = models[static_cast<std::size_t>(worker)];
      for (int number = 0; number < kSteps; ++number) step(exchange, model, worker, number);
    }));
    const Model expected = averaged(3, kSteps);
    for (const Model& model : models) EXPECT_EQ(model, expected);
  }
}

/// The sum of 1, 2^-53 and 2^-53 depends on the order.
TEST(SumOverServers, AddsInTheOrderOfServersOnAll) {
  for (const Placement& placement : {Placement{2, 3, false}, Placement{4, 3, true}}) {
    gradwire::test::LocalJob job(placement.ranks(), {.failure_domain = FailureDomain::pair});
    expect_no_errors(job.run([&](Rank rank, Communicator& pairs) {
      for (int server = 0; server < placement.servers; ++server) {
        if (placement.rank_of_server(server) != rank) continue;
        for (int number = 0; number < 3; ++number) {
          const double own = server == 0 ? 1 : 0x1p-53;
          EXPECT_THAT(sum_over_servers(pairs, placement, server, {own, 1.0 * server}),
                      testing::ElementsAre(1, 3));
        }
      }
    }));
  }
}

TEST(SumOverServers, FailsIfAnotherServerLeaves) {
  const Placement placement{1, 3, false};
  gradwire::test::LocalJob job(placement.ranks(), {.failure_domain = FailureDomain::pair});
  const auto errors = job.run([&](Rank rank, Communicator& pairs) {
    if (rank == 2) return pairs.leave_at_once("after a test");
    if (rank > 0) sum_over_servers(pairs, placement, rank - 1, {1});
  });
  EXPECT_EQ(errors[0] + errors[2], "");
  EXPECT_THAT(errors[1], HasSubstr("server 0 of 3 has no norms of all servers"));
  EXPECT_THAT(errors[3], HasSubstr("left the job after a test"));
}

TEST(ServedJob, AServerThatWaitsForALostOneEnds) {
  ServedJob job(layout_of({2, 2, false}, {.whole_steps = true}));
  std::atomic<int> sums = 0;
  job.shards()[0].before_step_all = [&] {
    sum_over_servers(job.job().on(2), job.layout().placement, 0, {1});
    ++sums;
  };
  job.shards()[1].before_step_all = [&, steps = 0]() mutable {
    if (++steps > 3) throw std::runtime_error("failed in a test");
    sum_over_servers(job.job().on(3), job.layout().placement, 1, {1});
  };
  const auto errors = job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int number = 0; number < kSteps; ++number) step(exchange, model, worker, number);
  });
  EXPECT_EQ(sums, 3);
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
  EXPECT_THAT(errors[2], HasSubstr("server 0 of 2 has no norms of all servers"));
  EXPECT_EQ(errors[3], "failed in a test");
}

TEST(ServedJob, AnAtomicPushAndPullHasAMeanStalenessOfTheOtherWorkers) {
  constexpr int kWorkers = 4, kUpdates = 800;
  ServedJob job(layout_of({kWorkers, 1, false}, {.mode = Mode::async}));
  std::atomic<int> dealt = 0;
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int number = 0; dealt++ < kUpdates; ++number) {
      const int until = worker == 3 ? std::min<int>(dealt + 20, kUpdates) : 0;
      while (dealt < until) std::this_thread::yield();  // A slow worker.
      step(exchange, model, worker, number);
    }
  }));
  const Staleness staleness = job.reports().front().staleness();
  EXPECT_EQ(staleness.count(), 3 * kUpdates);
  // No interval has the updates before a worker's first one and after its last one.
  EXPECT_NEAR(staleness.mean(), kWorkers - 1, 0.1);
}

TEST(ServedJob, StepsAtTheRateOfItsRule) {
  ServedJob job(layout_of({3, 1, false}, {.mode = Mode::async, .rate = {RateRule::Kind::inverse}}));
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int number = 0; number < 30; ++number) step(exchange, model, worker, number);
  }));
  double sum = 0;
  for (const double rate : job.shards().front().rates) sum += rate;
  const ServerReport& report = job.reports().front();
  EXPECT_LT(report.mean_factor, 1);
  EXPECT_NEAR(report.mean_factor, sum / static_cast<double>(report.updates()), 1e-9);
}

TEST(ServedJob, PullsOnlyWhenItIsDue) {
  ServedJob job(layout_of({1, 1, false}, {.mode = Mode::async}));
  std::vector<float> seen;
  expect_no_errors(job.run(
      [&](Rank worker, ServedExchange& exchange) {
        Model model = zeros(three_units());
        for (int number = 0; number < 6; ++number) {
          step(exchange, model, worker, number);
          seen.push_back(model[0][0]);
        }
      },
      /*pull_every=*/3));
  EXPECT_EQ(seen[0], 0);
  EXPECT_EQ(seen[1], 0);
  EXPECT_NE(seen[2], 0);
  EXPECT_EQ(seen[3], seen[2]);
  EXPECT_NE(seen[5], seen[2]);
  EXPECT_EQ(seen[5], job.shards()[0].parts[0].values[0]);
  EXPECT_THAT(job.reports()[0].by_unit[0].counts(),
              testing::ElementsAre(testing::Pair(0, 2), testing::Pair(1, 2), testing::Pair(2, 2)));
}

TEST(ServedJob, APushThatIsNotPulledMustNotBeFollowedByAnother) {
  ServedJob job(layout_of({1, 1, false}, {}));
  expect_no_errors(job.run([&](Rank, ServedExchange& exchange) {
    Model model = zeros(three_units()), gradient = zeros(three_units());
    exchange.reduce_scatter(0, lend(gradient[0]), {}, 0).wait();
    const auto again = [&] { exchange.reduce_scatter(0, lend(gradient[0]), {}, 0); };
    EXPECT_THAT(error_of(again), HasSubstr("call step() after each backward"));
    const std::vector<LentSpan> all{lend(model[0]), lend(model[1]), lend(model[2])};
    EXPECT_THAT(error_of([&] { exchange.pull(all); }), HasSubstr("call step()"));
    EXPECT_THAT(error_of([&] { exchange.meet(); }), HasSubstr("call step()"));
    exchange.all_gather(0, {}, lend(model[0]), 0).wait();
    exchange.pull(all);
    exchange.reduce_scatter(0, lend(gradient[0]), {}, 0).wait();
    exchange.all_gather(0, {}, lend(model[0]), 0).wait();
  }));
  EXPECT_EQ(job.reports()[0].by_unit[0].counts(), (std::map<std::int64_t, std::int64_t>{{0, 2}}));
}

TEST(ServedJob, AStepOfTheFirstGradientsDropsTheLateOnes) {
  ServedJob job(layout_of({4, 2, false}, {.use = 0.75}));
  constexpr int kRounds = 5, kAhead = 4;  // The others are kAhead steps ahead in each round.
  constexpr Rank kLate = 1;
  std::atomic<int> done = 0, late = 0;
  const auto wait_for = [](const std::atomic<int>& count, int value) {
    while (count < value) std::this_thread::yield();
  };
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int round = 1; round <= kRounds; ++round) {
      if (worker == kLate) {
        wait_for(done, 3 * kAhead * round);
        step(exchange, model, worker, round);
        ++late;
        continue;
      }
      for (int i = 0; i < kAhead; ++i) step(exchange, model, worker, round * kAhead + i), ++done;
      wait_for(late, round);
    }
  }));
  for (const ServerReport& report : job.reports()) {
    EXPECT_EQ(report.dropped[kLate].late, 3 * kRounds);
    EXPECT_EQ(report.late(), 3 * kRounds);
    EXPECT_EQ(report.updates(), 3 * 3 * kAhead * kRounds);
    EXPECT_EQ(report.staleness().max(), 0);
  }
}

/// The values as the receiver of a message has them, with the codec of its sender.
std::vector<float> transmitted(const codec::Codec& codec, std::span<const float> values,
                               std::span<float> residual, std::uint64_t seed) {
  std::vector<std::byte> encoded(codec.encoded_bytes(values.size()));
  codec.encode(values, residual, seed, encoded);
  std::vector<float> decoded(values.size());
  value_or_throw(codec.decode(encoded, seed, decoded));
  return decoded;
}

/// Unit 0 has no codec, because it is small.
/// Two of three gradients are a step, unless the third comes within the grace.
TEST(ServedJob, AStepWaitsForMoreGradientsUntilItsGraceIsOver) {
  const auto late = [](double grace) {
    ServedJob job(layout_of({3, 1, false}, {.use = 0.5, .grace = duration_of(grace)}));
    std::barrier<> two(2);
    std::atomic<bool> stepped = false;
    expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
      Model model = zeros(three_units());
      // Worker 2 is late: it pushes when the others' step is done, or after a while.
      if (worker == 2) {
        const SteadyClock clock;
        const Time enough = clock.now() + duration_of(0.2);
        while (!stepped && clock.now() < enough) std::this_thread::yield();
      }
      step(exchange, model, worker, 0);
      stepped = true;
    }));
    return job.reports()[0].late();
  };
  EXPECT_EQ(late(0), 3) << "units";
  EXPECT_EQ(late(0.05), 3);
  EXPECT_EQ(late(100), 0);
}

TEST(ServedJob, GradientsCountByTheirSamples) {
  for (const ServerPolicy& policy : {ServerPolicy{}, ServerPolicy{.mode = Mode::async}}) {
    ServedLayout layout = layout_of({2, 1, false}, policy);
    layout.units = {{.count = 1}};
    layout.weighs_samples = true;
    ServedJob job(layout);
    std::barrier<> in_turn(2);
    expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
      std::vector<float> gradient{worker == 0 ? 1.0F : 4.0F}, value(1);
      exchange.set_samples(worker == 0 ? 3 : 1);
      if (worker == 1 && policy.mode == Mode::async) in_turn.arrive_and_wait();
      exchange.reduce_scatter(0, lend(gradient), {}, 0).wait();
      exchange.all_gather(0, {}, lend(value), 0).wait();
      if (worker == 0 && policy.mode == Mode::async) in_turn.arrive_and_wait();
    }));
    if (policy.mode == Mode::sync) {
      // (3 * 1 + 1 * 4) / 4, at the rate 0.1.
      EXPECT_NEAR(job.shards()[0].parts[0].values[0], -0.1 * 7 / 4, 1e-6);
    } else {
      // The first one's mean is its own; the second has 1 of (3 + 1) / 2 samples.
      EXPECT_THAT(job.shards()[0].rates, testing::ElementsAre(1, 0.5));
    }
  }
}

TEST(ServedJob, GradientsAndValuesHaveTheirCodecs) {
  constexpr int kPushes = 3, kServers = 2;
  for (const std::string push : {"int8", "top_k:0.01", "none"}) {
    ServedLayout layout = layout_of({1, kServers, false}, {.mode = Mode::async});
    layout.units[0].skip_compression = true;
    layout.codecs = {.push = push, .pull = "bf16", .seed = 7};
    const UnitCodecs codecs = layout.unit_codecs();
    ServedJob job(layout);
    Model model = zeros(layout.units);
    expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
      for (int number = 0; number < kPushes; ++number) step(exchange, model, worker, number);
    }));
    const auto bf16 = value_or_throw(codec::make_codec("bf16"));
    for (std::size_t unit = 0; unit < model.size(); ++unit) {
      const std::size_t count = model[unit].size() / kServers;
      for (std::size_t server = 0; server < kServers; ++server) {
        SteppedValues expected(count);
        std::vector<float> residual(count);
        for (int number = 0; number < kPushes; ++number) {
          const auto whole = gradient_of(0, unit, model[unit].size(), number);
          std::vector<float> gradient(
              whole.begin() + static_cast<std::ptrdiff_t>(server * count),
              whole.begin() + static_cast<std::ptrdiff_t>((server + 1) * count));
          if (const auto codec = codecs.push(unit, number)) {
            const std::span<float> kept = codec->wants_feedback() ? residual : std::span<float>();
            gradient = transmitted(*codec, gradient, kept,
                                   codecs.seed_of(unit, static_cast<int>(server), 0, number));
          }
          expected.step(gradient.data(), 1);
        }
        EXPECT_EQ(job.shards()[server].parts[unit].values, expected.values) << push << unit;
        const auto pulled =
            unit == 0 ? expected.values : transmitted(*bf16, expected.values, {}, 0);
        const auto part = model[unit].begin() + static_cast<std::ptrdiff_t>(server * count);
        EXPECT_TRUE(std::equal(pulled.begin(), pulled.end(), part)) << push << unit;
      }
    }
    if (push == "none") continue;
    EXPECT_LT(job.job().on(0).payload_bytes_sent(), kPushes * bytes_of(three_units()) / 3);
  }
}

TEST(ServedJob, RefusesCodecsOfWholeTensors) {
  for (const std::string push : {"power_sgd:2", "auto", "auto:int8"}) {
    EXPECT_THAT(error_of([&] { check(CodecSettings{.push = push}); }),
                HasSubstr("need a codec of single values"));
  }
  EXPECT_THAT(error_of([] { check(CodecSettings{.pull = "int8"}); }), HasSubstr("none or bf16"));
}

TEST(ServedJob, LoadedValuesReachTheWorkers) {
  ServedJob job(layout_of({2, 2, false}, {}));
  std::atomic<bool> loaded = false;
  Model pulled = zeros(three_units()), first = zeros(three_units());
  for (std::size_t unit = 0; unit < first.size(); ++unit) {
    first[unit] = draw_gradient(first[unit].size(), unit);
  }
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    if (worker == 0) {
      for (std::size_t unit = 0; unit < 3; ++unit) exchange.load(unit, lend(first[unit]));
      loaded = true;
    }
    while (!loaded) std::this_thread::yield();
    Model model = zeros(three_units()), zero = zeros(three_units());
    for (std::size_t unit = 0; unit < 3; ++unit) {
      exchange.reduce_scatter(unit, lend(zero[unit]), {}, 0).wait();
      exchange.all_gather(unit, {}, lend(model[unit]), 0).wait();
    }
    if (worker == 1) pulled = model;
  }));
  EXPECT_EQ(pulled, first);
}

/// Three steps of two workers after 40 updates of earlier runs.
TEST(ServedJob, GoesOnFromTheVersionsOfEarlierRuns) {
  for (const Mode mode : {Mode::sync, Mode::ssp, Mode::async}) {
    ServedJob job(layout_of({2, 2, false}, {.mode = mode}));
    std::atomic<bool> begun = false;
    expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
      Model model = zeros(three_units());
      if (worker == 0) {
        exchange.begin_at({40, 40, 40});
        begun = true;
      }
      while (!begun) std::this_thread::yield();
      EXPECT_EQ(exchange.meet().clock, mode == Mode::sync ? 40 : 20);
      std::vector<LentSpan> values;
      for (auto& unit : model) values.push_back(lend(unit));
      exchange.pull(values);
      for (int number = 0; number < 3; ++number) step(exchange, model, worker, number);
      exchange.meet();
      const std::int64_t version = 40 + (mode == Mode::sync ? 3 : 6);
      EXPECT_EQ(exchange.versions(), std::vector(2, std::vector<std::int64_t>(3, version)));
      EXPECT_EQ(exchange.report().versions, std::vector<std::int64_t>(3, version));
      EXPECT_LE(exchange.report().staleness().max(), mode == Mode::sync ? 0 : 5);
    }));
  }
}

TEST(ServedJob, RefusesToBeginAtAVersionAfterAPush) {
  ServedJob job(layout_of({1, 1, false}, {}));
  const auto errors = job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    step(exchange, model, worker, 0);
    exchange.begin_at({40, 40, 40});
  });
  EXPECT_THAT(errors.front(), HasSubstr("unit 0 of version 1 is to begin at version 40"));
}

TEST(ServedJob, StatesOfOptimizersGoToAndFro) {
  ServedJob job(layout_of({1, 2, false}, {}));
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int number = 0; number < 3; ++number) step(exchange, model, worker, number);
    std::vector<std::vector<float>> states;
    std::vector<LentSpan> spans;
    for (const auto& unit : three_units()) states.emplace_back(unit.count / 2);
    for (auto& state : states) spans.push_back(lend(state));
    for (int server = 0; server < 2; ++server) {
      exchange.fetch_states(server, spans);
      for (auto& state : states) {
        EXPECT_NE(state.front(), 0);
        for (float& value : state) value += 1 + static_cast<float>(server);
      }
      exchange.load_states(server, spans);
    }
    std::vector<std::vector<float>> again = states;
    for (std::size_t i = 0; i < again.size(); ++i) spans[i] = lend(again[i]);
    exchange.fetch_states(1, spans);
    EXPECT_EQ(again, states);
  }));
}

TEST(ServedJob, AWorkerMayAskWhatTheServersHaveDone) {
  ServedJob job(layout_of({1, 2, false}, {}));
  ServerReport report;
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    Model model = zeros(three_units());
    for (int number = 0; number < 5; ++number) step(exchange, model, worker, number);
    report = exchange.report();
  }));
  EXPECT_EQ(report.updates(), 2 * 3 * 5);
  EXPECT_EQ(report.by_worker[0].count(), 2 * 3 * 5);
  EXPECT_GT(report.busy, Duration::zero());
  EXPECT_GT(report.elapsed, Duration::zero());
}

/// Trains on dealt samples until there are no more; counts those of each epoch.
void train_on_dealt(ServedExchange& exchange, Rank worker, const std::function<void()>& compute,
                    std::vector<std::vector<std::atomic<int>>>& used) {
  Model model = zeros(three_units());
  exchange.set_batches(1);
  std::vector<LentSpan> all;
  for (auto& unit : model) all.push_back(lend(unit));
  const auto total = static_cast<std::int64_t>(used.size() * used[0].size());
  for (int number = 0;;) {
    const Deal batch = exchange.take(7);
    if (batch.applied == total) return;
    if (batch.count == 0) {
      exchange.meet();
      exchange.pull(all);
      continue;
    }
    compute();
    for (std::int64_t i = 0; i < batch.count; ++i) {
      ++used[static_cast<std::size_t>(batch.epoch)][static_cast<std::size_t>(batch.begin + i)];
    }
    step(exchange, model, worker, number++);
  }
}

TEST(ServedJob, SamplesAreDealtOnceAndASlowWorkerGetsFewer) {
  ServedJob job(layout_of({3, 2, false}, {.mode = Mode::async}));
  constexpr std::size_t kSamples = 500, kEpochs = 2;
  job.deal(kSamples, kEpochs);
  std::vector<std::vector<std::atomic<int>>> used(kEpochs);
  for (auto& epoch : used) epoch = std::vector<std::atomic<int>>(kSamples);
  std::atomic<int> batches = 0;  // More than 100 are dealt.
  expect_no_errors(job.run([&](Rank worker, ServedExchange& exchange) {
    const auto compute = [&] {
      const int until = worker == 2 ? std::min<int>(++batches + 20, 100) : ++batches;
      while (batches < until) std::this_thread::yield();
    };
    train_on_dealt(exchange, worker, compute, used);
  }));
  for (const auto& epoch : used) EXPECT_THAT(epoch, testing::Each(testing::Eq(1)));
  const ServerReport& report = job.reports()[0];
  EXPECT_EQ(report.updates(), 3 * 2 * ((kSamples + 6) / 7));
  EXPECT_LT(report.by_worker[2].count(), report.by_worker[0].count());
}

TEST(ServedJob, WhatALostWorkerHasNotPushedIsDealtAgain) {
  ServedJob job(layout_of({2, 1, false}, {.mode = Mode::async}));
  constexpr std::size_t kSamples = 200;
  job.deal(kSamples, 1);
  std::vector<std::vector<std::atomic<int>>> used(1);
  used[0] = std::vector<std::atomic<int>>(kSamples);
  const auto errors = job.run([&](Rank worker, ServedExchange& exchange) {
    if (worker == 0) {
      return train_on_dealt(
          exchange, worker, [] {}, used);
    }
    EXPECT_EQ(exchange.take(50).count, 50);
    job.job().on(1).leave_at_once("after a test");
    throw Exception(ErrorKind::aborted, "left");
  });
  EXPECT_EQ(errors[0] + errors[2], "");
  EXPECT_THAT(used[0], testing::Each(testing::Eq(1)));
}

struct Bad {
  std::string name;
  std::vector<Request> requests;
  std::string error;
};

std::vector<Bad> bad_requests() {
  using Kind = Request::Kind;
  const Request hello{.kind = Kind::hello,
                      .value = static_cast<std::int64_t>(
                          fingerprint_of(layout_of({3, 1, false}, {.mode = Mode::async})))};
  return {{"NoHello", {{.kind = Kind::push}}, "does not begin with hello"},
          {"AnotherModel", {{.kind = Kind::hello, .value = 7}}, "has another model"},
          {"UnknownKind", {hello, {.kind = static_cast<Kind>(77)}}, "unknown kind 77"},
          {"Unit", {hello, {.kind = Kind::push, .unit = 3}}, "names unit 3 of 3"},
          {"NegativeUnit", {hello, {.kind = Kind::load, .unit = -1}}, "names unit -1 of 3"},
          {"Twice",
           {hello, {.kind = Kind::push, .unit = 1}, {.kind = Kind::push, .unit = 1}},
           "sends unit 1 again before it has arrived"},
          {"NoSamples",
           {hello, {.kind = Kind::deal, .clock = 1}},
           "there are 0 samples to deal in 1 epochs"},
          {"States",
           {hello, {.kind = Kind::fetch_states, .value = 7}},
           "names 7 states of optimizers, and there are 3"},
          {"Batches",
           {hello, {.kind = Kind::deal, .clock = 1, .value = 9, .batches = -1}},
           "after -1 batches"},
          {"Order", {hello, {.kind = Kind::order}}, "which this server does not keep"},
          {"Take", {hello, {.kind = Kind::take, .value = 8}}, "deals none"}};
}

class BadRequest : public testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(ServedJob, BadRequest, testing::ValuesIn(bad_requests()),
                         [](const auto& given) { return given.param.name; });

TEST_P(BadRequest, EndsItsWorkerAlone) {
  ServedJob job(layout_of({3, 1, false}, {.mode = Mode::async}));
  constexpr Rank kBad = 1, kServer = 3;
  std::atomic<int> steps = 0;
  const auto errors = job.run_bare([&](Rank worker, Communicator& communicator) {
    if (worker != kBad) {
      ServedExchange exchange(job.communicator(worker), job.layout());
      Model model = zeros(three_units());
      for (int number = 0; number < 20; ++number) step(exchange, model, worker, number), ++steps;
      return exchange.leave();
    }
    for (Request request : GetParam().requests) {
      communicator.send(lend_message(request), kServer, kRequestTag).wait();
    }
    Reply welcome, refusal;
    communicator.recv(lend_message(welcome), kServer, kReplyTag).wait();
    communicator.recv(lend_message(refusal), kServer, kReplyTag).wait();
  });
  EXPECT_THAT(errors[kBad], HasSubstr(GetParam().error));
  EXPECT_EQ(steps, 40);
  EXPECT_EQ(errors[0] + errors[2] + errors[3], "");
  EXPECT_THAT(job.warnings()[0], HasSubstr(GetParam().error));
}

TEST(ServedJob, AWorkerOfWrongSizesEndsItselfAlone) {
  ServedJob job(layout_of({3, 1, false}, {.mode = Mode::async}));
  const auto errors = job.run_bare([&](Rank worker, Communicator& communicator) {
    ServedExchange exchange(job.communicator(worker), job.layout());
    Model model = zeros(three_units());
    for (int number = 0; number < 10; ++number) step(exchange, model, worker, number);
    if (worker != 1) return exchange.leave();
    Request request{.kind = Request::Kind::push, .unit = 1, .clock = 10};
    std::vector<float> huge(1'000'000);
    communicator.send(lend_message(request), 3, kRequestTag).wait();
    communicator.send(lend(huge), 3, push_tag(1)).wait();
    Reply never;
    communicator.recv(lend_message(never), 3, kReplyTag).wait();
  });
  EXPECT_NE(errors[1], "");
  EXPECT_EQ(errors[0] + errors[2] + errors[3], "");
  EXPECT_NE(job.warnings()[0], "");
}

TEST(ServedJob, OthersGoOnWithoutALostWorker) {
  for (const ServerPolicy& policy :
       {ServerPolicy{}, ServerPolicy{.mode = Mode::ssp, .staleness = 1},
        ServerPolicy{.mode = Mode::async}}) {
    ServedJob job(layout_of({3, 2, false}, policy));
    std::atomic<int> steps = 0;
    const auto errors = job.run([&](Rank worker, ServedExchange& exchange) {
      Model model = zeros(three_units());
      for (int number = 0; number < 20; ++number) {
        step(exchange, model, worker, number);
        ++steps;
        if (worker == 1 && number == 5) {
          job.job().on(1).leave_at_once("after a test");
          throw Exception(ErrorKind::aborted, "left");
        }
      }
    });
    EXPECT_EQ(errors[0] + errors[2] + errors[3] + errors[4], "") << mode_text(policy);
    EXPECT_EQ(steps, 46);
    EXPECT_THAT(job.warnings()[0], HasSubstr("left the job after a test"));
  }
}

TEST(ServedJob, AWorkerLostWhileItSendsStatesEndsItselfAlone) {
  ServedJob job(layout_of({3, 1, false}, {.mode = Mode::async}));
  const auto errors = job.run([&](Rank worker, ServedExchange& exchange) {
    if (worker == 1) {
      Request request{.kind = Request::Kind::load_states, .value = 3};
      job.job().on(1).send(lend_message(request), 3, kRequestTag).wait();
      job.job().on(1).leave_at_once("after a test");
      throw Exception(ErrorKind::aborted, "left");
    }
    Model model = zeros(three_units());
    for (int number = 0; number < 20; ++number) step(exchange, model, worker, number);
  });
  EXPECT_EQ(errors[0] + errors[2] + errors[3], "");
  EXPECT_THAT(job.warnings()[0], HasSubstr("left the job after a test"));
}

TEST(ServerReport, SurvivesAMessageAndRefusesDamage) {
  ServerReport report{.mean_factor = 0.25, .busy = Duration(17), .elapsed = Duration(35)};
  report.versions = {4, 3};
  report.by_unit.resize(2);
  report.by_unit[1].add(3, 4);
  report.by_worker.resize(1);
  report.paces = {{.mean = Duration(7), .deviation = Duration(3)}};
  report.dropped = {{.late = 5, .repeated = 6}};
  const std::vector<std::int64_t> integers = encode(report);
  const ServerReport same = decode_report(integers);
  EXPECT_EQ(encode(same), integers);
  EXPECT_EQ(same.versions, report.versions);
  EXPECT_EQ(same.late(), 5);
  EXPECT_EQ(same.staleness().mean(), 3);
  EXPECT_EQ(same.paces[0].deviation, Duration(3));
  for (std::size_t length = 0; length < integers.size(); ++length) {
    EXPECT_THROW(decode_report(std::span(integers).first(length)), Exception) << length;
  }
  for (std::size_t i = 3; i < integers.size(); ++i) {
    std::vector<std::int64_t> damaged = integers;
    damaged[i] = -1;
    const bool is_count_of_a_worker = i + 2 >= integers.size();
    if (is_count_of_a_worker) continue;
    EXPECT_THROW(decode_report(damaged), Exception) << i;
  }
}

}  // namespace
}  // namespace gradwire::servers::test

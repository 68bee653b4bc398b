#include "gradwire/federated/simulated_rounds.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"

namespace gradwire::federated {
namespace {

double normal_quantile(double u) {
  double low = -10, high = 10;
  for (int i = 0; i < 100; ++i) {
    const double x = 0.5 * (low + high);
    (0.5 * std::erfc(-x / std::sqrt(2)) < u ? low : high) = x;
  }
  return low;
}

/// Mean of the k-th smallest of n log-normal values: the integral of the quantile with the density
/// of the Beta distribution (k, n - k + 1).
double order_statistic(int k, int n, double median, double sigma) {
  double sum = 0, mass = 0;
  for (int i = 1; i < 4000; ++i) {
    const double u = i / 4000.0;
    const double density = std::exp((k - 1) * std::log(u) + (n - k) * std::log1p(-u) +
                                    std::lgamma(n + 1) - std::lgamma(k) - std::lgamma(n - k + 1));
    sum += density * median * std::exp(sigma * normal_quantile(u));
    mass += density;
  }
  return sum / mass;
}

struct Simulated {
  RoundPolicy policy{.least = 1, .window = std::chrono::hours(200)};
  DeviceModel devices{.compute = {10, 0.5}};
  SimulatedWork work;
  int clients = 5000;

  SimulatedRounds rounds(std::uint64_t seed = 1) const {
    const std::vector<std::int64_t> samples(static_cast<std::size_t>(clients), 600);
    return {policy, SimulatedClients(devices, samples, seed), work, seed};
  }
};

struct Means {
  double seconds = 0, used = 0, ready = 0, stopped = 0;

  void add(const RoundRecord& record) {
    seconds += gradwire::seconds(record.ended - record.began);
    used += record.used;
    ready += record.ready;
    stopped += record.stopped;
  }
};

Means means(SimulatedRounds rounds, int count) {
  Means means;
  NoUpdates none;
  for (int i = 0; i < count; ++i) means.add(rounds.next(none).record());
  for (double* sum : {&means.seconds, &means.used, &means.ready, &means.stopped}) *sum /= count;
  return means;
}

TEST(SimulatedRounds, LastUntilTheLastThatIsNeeded) {
  const Means found = means(Simulated().rounds(), 300);
  const double expected = order_statistic(256, 300, 10, 0.5);
  EXPECT_NEAR(found.seconds, expected, 0.02 * expected);
  EXPECT_EQ(found.used, 256);
  EXPECT_EQ(found.stopped, 44);
}

TEST(SimulatedRounds, OverSelectionSparesTheStragglers) {
  Simulated job;
  const double over = means(job.rounds(), 200).seconds;
  job.policy.ask = 256;
  EXPECT_GT(means(job.rounds(), 200).seconds, 2 * over);
}

TEST(SimulatedRounds, EndAtTheWindowWithThoseThatHaveCome) {
  Simulated job;
  job.policy.window = std::chrono::seconds(10);  // The median.
  job.work.partial = Partial::drop;
  SimulatedRounds rounds = job.rounds();
  NoUpdates none;
  double used = 0;
  for (int i = 0; i < 200; ++i) {
    const RoundRecord& record = rounds.next(none).record();
    EXPECT_LE(record.ended - record.began, job.policy.window);
    used += record.used / 200.0;
    EXPECT_EQ(record.used + record.dropped, 300);
  }
  EXPECT_NEAR(used, 150, 3);
  EXPECT_LT(jain_index(rounds.records()), 0.8);  // Half of the clients never count.
}

TEST(SimulatedRounds, CountPartialWork) {
  Simulated job;
  job.policy.window = std::chrono::seconds(10);
  job.policy.use = 300;
  const Means found = means(job.rounds(), 20);
  EXPECT_EQ(found.used, 300);
  EXPECT_NEAR(found.seconds, 10, 1e-6);
}

TEST(SimulatedRounds, HaveThePortOfTheServer) {
  Simulated job;
  job.devices = {.compute = {10, 0}, .up = {1e6, 0}, .down = {1e6, 0}};
  job.work.update_bytes = [](int) { return 1e6; };
  job.work.server_rate = 1e7;
  // All train at once; updates of 0.1 s each at the server, the first after 11 s.
  EXPECT_NEAR(means(job.rounds(), 5).seconds, 11 + 255 * 0.1, 1e-6);
}

TEST(SimulatedRounds, LoseThoseThatVanish) {
  Simulated job;
  job.devices.drop = 0.5;
  const Means found = means(job.rounds(), 50);
  // One half vanishes, half of these while they upload.
  EXPECT_NEAR(found.ready, 225, 5);
  EXPECT_NEAR(found.used, 150, 5);
  job.policy.least = 200;
  SimulatedRounds rounds = job.rounds();
  NoUpdates none;
  EXPECT_EQ(rounds.next(none).phase(), Phase::abandoned);
}

TEST(SimulatedRounds, CountTheComputeOfAClientOnceAlsoIfItIsLostLater) {
  Simulated job;
  job.clients = 30;
  job.devices = {.compute = {10, 0}, .drop = 0.3};
  job.policy = {.ask = 24, .use = 20, .least = 5};
  for (const bool is_secure : {false, true}) {
    if (is_secure) job.policy.secure = SecureRound{.policy = {.neighbours = 19, .threshold = 10}};
    SimulatedRounds rounds = job.rounds();
    NoUpdates none;
    for (int i = 0; i < 8; ++i) rounds.next(none);
    std::int64_t lost = 0;
    for (const ClientRecord& one : rounds.records()) {
      const auto asked = static_cast<double>(one.asked), counted = static_cast<double>(one.counted);
      EXPECT_LE(one.compute_seconds, 10 * asked + 1e-6);
      EXPECT_GE(one.compute_seconds, 10 * counted - 1e-6);
      lost += one.asked - one.counted;
    }
    EXPECT_GT(lost, 20);
  }
}

TEST(SimulatedRounds, AskEligibleClientsOnly) {
  Simulated job;
  job.clients = 2000;
  job.devices.eligible = 0.3;
  SimulatedRounds rounds = job.rounds();
  NoUpdates none;
  const RoundRecord& record = rounds.next(none).record();
  EXPECT_NEAR(record.checked_in, 600, 80);
  EXPECT_EQ(record.asked, 300);
}

TEST(SimulatedRounds, SumTheUpdatesOfThoseThatCount) {
  struct Ones final : UpdateSource {
    std::vector<AwaitedUpdate> awaited;
    std::size_t given = 0;
    void begin(std::span<const AwaitedUpdate> cohort) override {
      awaited.assign(cohort.begin(), cohort.end());
      given = 0;
    }
    Contribution next() override {
      const AwaitedUpdate& one = awaited[given++];
      Contribution ones{ModularVector(2, one.upload.bits), ModularVector(1, 64)};
      ones[0].set(0, static_cast<std::uint64_t>(one.upload.weight));
      ones[1].set(0, 1);
      return ones;
    }
  } updates;
  Simulated job;
  job.devices.drop = 0.2;
  const std::vector<std::int64_t> samples(1000, 7);
  SimulatedRounds rounds(job.policy, SimulatedClients(job.devices, samples, 1), {}, 1);
  const Round& round = rounds.next(updates, {.elements = 2, .metrics = 1});
  EXPECT_EQ(round.sum()[0][0], static_cast<std::uint64_t>(round.weight()));
  EXPECT_EQ(round.sum()[0][0], 7u * round.counted().size());
  EXPECT_EQ(round.sum()[1][0], round.counted().size());
}

TEST(SimulatedRounds, RefuseStragglersOfOneEpoch) {
  Simulated job;
  job.devices.stragglers = 0.5;
  EXPECT_THROW(job.rounds(), Exception);
  job.work.epochs = 2;
  EXPECT_NO_THROW(job.rounds());
}

TEST(SimulatedClients, DoNotDependOnEachOther) {
  const DeviceModel model{.eligible = 0.5, .drop = 0.5, .stragglers = 0.5};
  const SimulatedClients few(model, std::vector<std::int64_t>(10, 5), 3);
  const SimulatedClients many(model, std::vector<std::int64_t>(1000, 5), 3);
  for (ClientId client = 0; client < 10; ++client) {
    EXPECT_EQ(few.compute_time(client), many.compute_time(client));
    EXPECT_EQ(few.checks_in(client, 9), many.checks_in(client, 9));
    EXPECT_EQ(few.fate(client, 9, 20).epochs, many.fate(client, 9, 20).epochs);
  }
}

TEST(Fairness, IsJainsIndex) {
  EXPECT_DOUBLE_EQ(jain_index(std::vector<double>{2, 2, 2}), 1);
  EXPECT_DOUBLE_EQ(jain_index(std::vector<double>{4, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(jain_index(std::vector<double>()), 1);
  EXPECT_DOUBLE_EQ(worst_tenth({1, 2, 3}), 1);
  std::vector<double> values(40);
  std::iota(values.rbegin(), values.rend(), 0);
  EXPECT_DOUBLE_EQ(worst_tenth(values), 1.5);
}

TEST(Fairness, SumsByClassOfDevices) {
  const auto classes = classes_of(std::vector<double>{1, 9, 5});
  EXPECT_EQ(classes, (std::vector{DeviceClass::fast, DeviceClass::slow, DeviceClass::middle}));
  const std::vector<ClientRecord> records{{.samples = 50, .counted = 3},
                                          {.samples = 40, .counted = 0, .compute_seconds = 5},
                                          {.samples = 10, .counted = 1}};
  const auto found = by_class(records, classes);
  EXPECT_DOUBLE_EQ(found[0].sample_share, 0.4);
  EXPECT_DOUBLE_EQ(found[0].counted_share, 0);
  EXPECT_DOUBLE_EQ(found[0].compute_seconds, 5);
  EXPECT_DOUBLE_EQ(found[2].counted_share, 0.75);
}

}  // namespace
}  // namespace gradwire::federated

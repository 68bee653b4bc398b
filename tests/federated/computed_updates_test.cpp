#include "gradwire/federated/computed_updates.h"

#include <atomic>
#include <cmath>

#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/federated/simulated_rounds.h"

namespace gradwire::federated {
namespace {

constexpr std::size_t kElements = 40;

/// Moves each parameter towards the client's number.
class Pull final : public ClientTrainer {
 public:
  LocalResult train(const LocalWork& work) override {
    update_.assign(work.model.begin(), work.model.end());
    for (std::size_t i = 0; i < update_.size(); ++i) {
      update_[i] = 0.01F * static_cast<float>(work.client + static_cast<ClientId>(i)) - update_[i];
      if (work.client == breaks) update_[i] = std::nanf("");
    }
    for (int i = 0; work.client == takes_long && i < 20'000'000; ++i) ++training;
    if (work.client == takes_long) training = 0;
    ++trained;
    return {.update = update_, .steps = 3, .training_loss = 1, .evaluated = 10, .correct = 4};
  }

  static inline std::atomic<int> trained = 0;
  static inline std::atomic<ClientId> breaks = -1;
  static inline std::atomic<ClientId> takes_long = -1;
  static inline std::atomic<int> training = 0;  ///< Above 0 while a client takes long.

 private:
  std::vector<float> update_;
};

std::unique_ptr<ComputedUpdates> updates_on(int threads) {
  std::vector<std::unique_ptr<ClientTrainer>> trainers;
  for (int i = 0; i < threads; ++i) trainers.push_back(std::make_unique<Pull>());
  return std::make_unique<ComputedUpdates>(std::move(trainers));
}

SimulatedRounds twenty_of_100() {
  const RoundPolicy policy{.ask = 30, .use = 20, .least = 5};
  return {policy, SimulatedClients({}, std::vector<std::int64_t>(100, 7), 1), {}, 1};
}

Contribution first_sum(int threads) {
  const std::vector<float> model(kElements, 0.25F);
  const UpdateQuantizer quantizer({.bits = 8, .rotate = true}, kElements, 1, 3);
  const auto updates = updates_on(threads);
  updates->set_round(1, model, {.quantizer = &quantizer, .seed = 9});
  SimulatedRounds rounds = twenty_of_100();
  return rounds.next(*updates, {quantizer.elements(), Metrics::kElements}, 8).sum();
}

TEST(ComputedUpdates, HaveTheSameSumOnAnyNumberOfThreads) {
  const Contribution one = first_sum(1);
  EXPECT_EQ(metrics_of(one[1]).clients, 20);
  EXPECT_EQ(metrics_of(one[1]).accuracy(), 0.4);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(first_sum(threads), one) << threads;
}

/// The sum of a round in which a quarter of the asked clients vanish, half of these after they were
/// ready.
struct Sums {
  Contribution sum;
  std::vector<ClientId> counted;
};

Sums sum_with(const std::optional<SecureRound>& secure, std::uint64_t seed) {
  const RoundPolicy policy{.ask = 40, .use = 30, .least = 5, .secure = secure};
  const DeviceModel devices{.drop = 0.25};
  SimulatedRounds rounds(policy, SimulatedClients(devices, std::vector<std::int64_t>(60, 7), seed),
                         {}, seed);
  const std::vector<float> model(kElements, 0.25F);
  const UpdateQuantizer quantizer({.bits = 8, .rotate = true}, kElements, 1, 3);
  const auto updates = updates_on(2);
  updates->set_round(1, model, {.quantizer = &quantizer, .seed = 9});
  const Round& round = rounds.next(*updates, {quantizer.elements(), Metrics::kElements}, 8);
  EXPECT_EQ(round.phase(), Phase::committed) << round.record().reason;
  return {round.sum(), round.counted()};
}

/// The sum of the updates of these clients.
Contribution plain_sum(const std::vector<ClientId>& clients, int bits) {
  const std::vector<float> model(kElements, 0.25F);
  const UpdateQuantizer quantizer({.bits = 8, .rotate = true}, kElements, 1, 3);
  const auto updates = updates_on(1);
  updates->set_round(1, model, {.quantizer = &quantizer, .seed = 9});
  std::vector<AwaitedUpdate> awaited;
  for (const ClientId client : clients) awaited.push_back({client, {bits, 7, std::nullopt}});
  updates->begin(awaited);
  Contribution sum{ModularVector(quantizer.elements(), bits),
                   ModularVector(Metrics::kElements, 64)};
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Contribution one = updates->next();
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += one[k];
  }
  return sum;
}

TEST(ComputedUpdates, HaveThePlainSumUnderMasks) {
  const SecureRound all{.policy = {.neighbours = 29, .threshold = 15}};
  const SecureRound some{.policy = {.neighbours = 16, .threshold = 9}};
  const SecureRound active{.policy = {.neighbours = 29, .threshold = 20, .active = true},
                           .signing_keys = simulated_enrolled_key};
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const SecureRound& secure : {all, some, active}) {
      const Sums found = sum_with(secure, seed);
      EXPECT_GE(found.counted.size(), 20);
      EXPECT_LE(found.counted.size(), 30);
      EXPECT_EQ(found.sum, plain_sum(found.counted, found.sum[0].bits()));
    }
  }
}

TEST(ComputedUpdates, TrainThoseThatCountAlone) {
  Pull::trained = 0;
  first_sum(3);
  EXPECT_EQ(Pull::trained, 20);
}

TEST(ComputedUpdates, RefuseWhatIsNotFinite) {
  for (const int threads : {1, 2}) {
    const auto updates = updates_on(threads);
    const std::vector<float> model(kElements);
    const UpdateQuantizer quantizer({.bits = 8}, kElements, 1, 3);
    for (ClientId client = 0; client < 100; ++client) {
      Pull::breaks = client;
      updates->set_round(1, model, {.quantizer = &quantizer, .seed = 9});
      updates->begin(
          std::vector<AwaitedUpdate>{{0, {8, 1, {}}}, {client, {8, 1, {}}}, {101, {8, 1, {}}}});
      if (client > 0) updates->next();
      EXPECT_THROW(updates->next(), Exception);
    }
    Pull::breaks = -1;
    updates->begin(std::vector<AwaitedUpdate>{{5, {8, 1, {}}}});
    EXPECT_EQ(updates->next()[0].size(), kElements) << "an abandoned round is forgotten";
  }
}

/// The caller of next() may end the quantizer when it throws.
TEST(ComputedUpdates, NobodyTrainsAfterAFailure) {
  Pull::breaks = 0;
  Pull::takes_long = 1;
  const auto updates = updates_on(2);
  const std::vector<float> model(kElements);
  const UpdateQuantizer quantizer({.bits = 8}, kElements, 1, 3);
  updates->set_round(1, model, {.quantizer = &quantizer, .seed = 9});
  updates->begin(std::vector<AwaitedUpdate>{{0, {8, 1, {}}}, {1, {8, 1, {}}}});
  EXPECT_THROW(updates->next(), Exception);
  EXPECT_EQ(Pull::training, 0);
  Pull::breaks = Pull::takes_long = -1;
}

}  // namespace
}  // namespace gradwire::federated

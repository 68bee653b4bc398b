#include <algorithm>

#include <gtest/gtest.h>

#include "gradwire/base/log.h"
#include "gradwire/base/random.h"
#include "gradwire/federated/remote/coordinator.h"
#include "tests/federated/fake_server_model.h"
#include "tests/support/seeds.h"

namespace gradwire::federated {
namespace {

using test::contribution_of;

constexpr int kClients = 12;

/// Clients that do what they should, and anything else, in virtual time.
class CoordinatorSimulation {
 public:
  explicit CoordinatorSimulation(std::uint64_t seed) : random_(seed) {
    const int use = static_cast<int>(random_.between(1, 6));
    const RoundPolicy policy{.ask = use + static_cast<int>(random_.below(5)),
                             .use = use,
                             .least = static_cast<int>(random_.between(1, use)),
                             .update_bits = 8};
    coordinator_.emplace(
        Coordinator::Options{.policy = policy, .seed = seed, .expected_within = kExpected}, model_,
        [](ClientId) { return "simulated"; });
    coordinator_->begin_round(now_);
  }

  void run() {
    for (int step = 0; step < 400; ++step) act(true);
    const std::size_t faulty = model_.ended().size();
    now_ += std::chrono::minutes(5);  // All that was told about other processes is forgotten.
    for (int step = 0; step < 4'000 && committed_ < 2; ++step) act(false);
    EXPECT_GE(committed_, 2) << "rounds without faults, after " << faulty;
  }

 private:
  static constexpr Duration kExpected = std::chrono::seconds(40);
  enum class State : std::uint8_t { idle, offered, training, ordered };
  struct Simulated {
    std::uint64_t instance = 1;
    State state = State::idle;
    std::int64_t round = -1;
    UploadOrder order;
    std::vector<std::pair<std::int64_t, Question>> asked;  ///< With their rounds.
    bool waits = false;
  };

  void act(bool has_faults) {
    now_ += std::chrono::milliseconds(random_.below(has_faults ? 3'000 : 300));
    if (coordinator_->deadline() <= now_) coordinator_->on_time(now_);
    const auto id = static_cast<ClientId>(random_.below(kClients));
    Simulated& client = clients_[static_cast<std::size_t>(id)];
    if (!has_faults || random_.below(10) < 6)
      go_on(id, client);
    else
      misbehave(id, client);
    if (coordinator_->has_ended()) end_round(!has_faults);
  }

  void misbehave(ClientId id, Simulated& client) {
    switch (random_.below(5)) {
      case 0:  // Another process.
        client = {.instance = random_.next(), .asked = client.asked};
        break;
      case 1:  // An old question.
        if (!client.asked.empty()) {
          const auto& [round, question] = client.asked[random_.below(client.asked.size())];
          (void)coordinator_->reply(id, client.instance, round, question, now_);
        }
        break;
      case 2:
        if (std::exchange(client.waits, false)) coordinator_->on_gone(id, now_);
        break;
      case 3:  // An update that nobody has ordered, or of another size.
        (void)coordinator_->reply(id, client.instance, coordinator_->round_number(),
                                  to_update(contribution_of(id, 9, 77)), now_);
        break;
      default:
        (void)coordinator_->reply(id, client.instance, client.round, Leave{}, now_);
        client.state = State::idle;
    }
  }

  void go_on(ClientId id, Simulated& client) {
    const std::int64_t samples = 10 * (id + 1);
    switch (client.state) {
      case State::idle:
        return ask(id, client, CheckIn{samples, -1}, -1);
      case State::offered:
        return ask(id, client, Fetch{}, client.round);
      case State::training:
        return ask(id, client, Ready{1}, client.round);
      case State::ordered:
        EXPECT_EQ(client.order.weight, samples);
        return ask(id, client,
                   to_update(contribution_of(id, client.order.bits, client.order.weight)),
                   client.round);
    }
  }

  void ask(ClientId id, Simulated& client, const Question& question, std::int64_t round) {
    client.asked.emplace_back(round, question);
    const auto answer = coordinator_->reply(id, client.instance, round, question, now_);
    client.waits = !answer;
    if (!answer) return;
    if (std::holds_alternative<Offer>(*answer)) {
      client.state = State::offered;
      client.round = coordinator_->round_number();
    } else if (std::holds_alternative<Task>(*answer)) {
      coordinator_->on_task_sent(id, now_);
      client.state = State::training;
    } else if (const auto* order = std::get_if<UploadOrder>(&*answer)) {
      client.order = *order;
      client.state = State::ordered;
    } else {
      client.state = State::idle;
    }
  }

  void end_round(bool is_clean) {
    const EndedRound round = coordinator_->ended();
    std::uint64_t sum = 0;
    std::int64_t weight = 0;
    for (const ClientId id : round.counted) {
      const std::int64_t samples = 10 * (id + 1);
      sum += static_cast<std::uint64_t>((id + 1) * samples);
      weight += samples;
    }
    if (round.sum != nullptr) {
      EXPECT_EQ((*round.sum)[0][0], sum) << "each update that counts, once";
      EXPECT_EQ((*round.sum)[1][0], round.counted.size());
      EXPECT_EQ(round.weight, weight);
      committed_ += is_clean ? 1 : 0;
    }
    for (const auto& [id, record] : round.ledger) {
      EXPECT_LE(record.counted, record.asked);
      EXPECT_LE(record.asked, record.eligible);
      EXPECT_LE(record.eligible, round.record.number);
    }
    model_.on_ended(round);
    coordinator_->begin_round(now_);
  }

  Random random_;
  test::FakeServerModel model_;
  Time now_{std::chrono::hours(1)};
  std::optional<Coordinator> coordinator_;
  std::array<Simulated, kClients> clients_;
  int committed_ = 0;
};

TEST(CoordinatorSimulation, WhateverClientsDoEachUpdateCountsOnceAndRoundsGoOn) {
  set_log_sink([](std::string_view) {});
  const auto seeds = gradwire::test::seeds_of_shard(0, 1, 300, 20'000);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    CoordinatorSimulation(seed).run();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "GRADWIRE_SEED=" << seed;
      break;
    }
  }
  set_log_sink({});
}

}  // namespace
}  // namespace gradwire::federated

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/federated/secure_trial.h"
#include "tests/support/seeds.h"

namespace gradwire::federated {
namespace {

using test::SecureTrial;
using test::SecureTrialOptions;
using Clients = std::vector<ClientId>;

/// Something that goes wrong with a client, and when.
struct Mishap {
  enum class Kind : std::uint8_t { none, vanishes, is_refused, repeats };
  Kind kind = Kind::none;
  SecurePhase phase = SecurePhase::keys;
};

/// A round in which each client may have a mishap, and the rule that says who counts.
class SimulatedRound {
 public:
  explicit SimulatedRound(std::uint64_t seed) : random_(seed) {
    options_.seed = seed;
    options_.clients = static_cast<int>(random_.between(3, 9));
    const auto most = static_cast<std::uint64_t>(options_.clients);
    SecurePolicy& policy = options_.policy;
    policy.active = random_.one_in(4);
    do {
      policy.neighbours = 2 * static_cast<int>(1 + random_.below(most / 2));
      if (random_.one_in(3)) policy.neighbours = options_.clients - 1;
      policy.threshold =
          least_threshold(policy.neighbours, policy.active) + static_cast<int>(random_.below(2));
    } while (!check(policy));
    options_.shapes = {{1 + random_.below(20), static_cast<int>(random_.between(1, 64))},
                       {random_.below(3), 64}};
    options_.least = static_cast<int>(random_.between(2, 4));
    options_.threads = random_.one_in(8) ? 2 : 1;
    const std::uint64_t rarity = 1 + random_.below(6);
    for (int number = 0; number < options_.clients; ++number) {
      Mishap& mishap = mishaps_[7 * number + 3];
      if (!random_.one_in(rarity)) continue;
      mishap.kind = static_cast<Mishap::Kind>(random_.between(1, 3));
      mishap.phase = static_cast<SecurePhase>(random_.below(5));
    }
  }

  /// Returns true if there is a sum.
  bool run() {
    trial_.emplace(options_);
    UnmaskingServer& server = trial_->server;
    while (server.phase() < SecurePhase::done && !testing::Test::HasFailure()) {
      const SecurePhase phase = server.phase();
      const Clients awaited(server.awaited().begin(), server.awaited().end());
      for (const ClientId client : awaited) act(client, phase);
      const bool goes_on = note(phase, answering(awaited, phase));
      const Status closed = server.close_phase();
      EXPECT_EQ(closed.has_value(), goes_on)
          << name_of(phase) << (closed ? "" : ": " + closed.error().message);
      EXPECT_TRUE(closed || closed.error().kind == ErrorKind::aborted);
    }
    if (server.phase() != SecurePhase::done) return false;
    EXPECT_EQ(server.counted(), counted_);
    EXPECT_EQ(server.sum(), trial_->plain_sum());
    return true;
  }

 private:
  bool is_lost(ClientId client, SecurePhase phase) const {
    const Mishap& mishap = mishaps_.at(client);
    return mishap.phase <= phase &&
           (mishap.kind == Mishap::Kind::vanishes || mishap.kind == Mishap::Kind::is_refused);
  }
  Clients answering(const Clients& awaited, SecurePhase phase) const {
    Clients left;
    for (const ClientId client : awaited)
      if (!is_lost(client, phase)) left.push_back(client);
    return left;
  }

  /// Has the client send what it would in the phase.
  void act(ClientId client, SecurePhase phase) {
    const Mishap& mishap = mishaps_.at(client);
    if (is_lost(client, phase)) {
      if (mishap.kind == Mishap::Kind::is_refused && mishap.phase == phase) send_rubbish(client);
      return;
    }
    const std::size_t before = trial_->received.size();
    const Status sent = trial_->send(client);
    EXPECT_TRUE(sent.has_value()) << sent.error().message;
    if (mishap.kind != Mishap::Kind::repeats || mishap.phase != phase) return;
    EXPECT_FALSE(trial_->send(client).has_value());  // By the client itself.
    if (phase == SecurePhase::masked) {
      EXPECT_FALSE(trial_->server.on_masked(client, trial_->masked.at(client)).has_value());
    } else if (phase == SecurePhase::unmasking) {
      const auto shares = decode<UnmaskingShares>(trial_->received.at(before)).value();
      EXPECT_FALSE(trial_->server.on_unmasking(client, shares).has_value());
    }
  }
  void send_rubbish(ClientId client) {
    UnmaskingServer& server = trial_->server;
    EXPECT_FALSE(server.on_advert(client, {.round = 8}).has_value());
    EXPECT_FALSE(server.on_shares(client, {.round = 9, .shares = {}}).has_value());
    EXPECT_FALSE(server.on_masked(client, {.round = 9, .segments = {}}).has_value());
    EXPECT_FALSE(server.on_signature(client, {.round = 9}).has_value());
    EXPECT_FALSE(
        server.on_unmasking(client, {.round = 9, .shares = std::vector<Share>(99)}).has_value());
  }

  /// Notes who has answered. Returns whether the round goes on, by the rule.
  bool note(SecurePhase phase, const Clients& answered) {
    const bool are_least = answered.size() >= static_cast<std::size_t>(options_.least);
    if (phase == SecurePhase::keys) return are_least && has_degree(answered.size());
    if (phase == SecurePhase::shares) {
      sharing_ = answered;
      while (std::erase_if(
          sharing_, [&, all = sharing_](ClientId client) { return !has_enough(client, all); })) {
      }
      return sharing_.size() >= static_cast<std::size_t>(options_.least);
    }
    if (phase == SecurePhase::masked) counted_ = answered;
    return (phase != SecurePhase::masked || are_least) &&
           std::ranges::all_of(sharing_,
                               [&](ClientId client) { return has_enough(client, answered); });
  }
  bool has_degree(std::size_t clients) const {
    const SecurePolicy& policy = options_.policy;
    const int degree =
        std::min(static_cast<int>(clients) - 1, policy.neighbours + policy.neighbours % 2);
    return degree >= policy.threshold &&
           (policy.active ? 3 * policy.threshold > 2 * degree : 2 * policy.threshold > degree);
  }
  bool has_enough(ClientId client, const Clients& left) const {
    return neighbours_left(client, left) >= options_.policy.threshold;
  }
  std::ptrdiff_t neighbours_left(ClientId client, const Clients& left) const {
    return std::ranges::count_if(trial_->server.roster_for(client).neighbours,
                                 [&](const Roster::Neighbour& neighbour) {
                                   return std::ranges::binary_search(left, neighbour.client);
                                 });
  }

  Random random_;
  SecureTrialOptions options_;
  std::map<ClientId, Mishap> mishaps_;
  std::optional<SecureTrial> trial_;
  Clients sharing_, counted_;
};

constexpr int kSimulationShards = 4;

class SecureSimulation : public testing::TestWithParam<int> {};

TEST_P(SecureSimulation, SumsAsThePlainSumOrIsAbandonedByRule) {
  const auto [first, count] = test::seeds_of_shard(GetParam(), kSimulationShards, 100, 20'000);
  int committed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SimulatedRound round(seed);
    committed += round.run();
    ASSERT_FALSE(HasFailure()) << "GRADWIRE_SEED=" << seed << " repeats it";
  }
  if (count < 50) return;
  EXPECT_GT(committed, static_cast<int>(count / 10));
  EXPECT_LT(committed, static_cast<int>(count - count / 10));
}

INSTANTIATE_TEST_SUITE_P(Shard, SecureSimulation, testing::Range(0, kSimulationShards));

}  // namespace
}  // namespace gradwire::federated

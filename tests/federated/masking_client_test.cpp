#include "gradwire/federated/secure/masking_client.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/federated/secure_trial.h"

namespace gradwire::federated {
namespace {

using test::SecureTrial;
using test::SecureTrialOptions;

/// Each lie of a server, and the reason by which a client refuses it.
template <class T>
void expect_refused(const Result<T>& result, std::string_view reason) {
  ASSERT_FALSE(result.has_value()) << reason;
  EXPECT_EQ(result.error().kind, ErrorKind::refused);
  EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
}

/// Seven clients of four neighbours; the tests are about the one with number 3.
class LyingServer : public testing::Test {
 protected:
  explicit LyingServer(bool active = false)
      : trial({.clients = 7,
               .policy = {
                   .neighbours = active ? 6 : 4, .threshold = active ? 5 : 3, .active = active}}) {}

  MaskingClient& client() { return trial.client(3); }
  ClientId self() const { return trial.id(3); }
  void reach(SecurePhase phase) { ASSERT_TRUE(trial.run_until(phase).has_value()); }
  Roster roster() {
    reach(SecurePhase::shares);
    return trial.server.roster_for(self());
  }
  ForwardedShares shares() {
    reach(SecurePhase::masked);
    return trial.server.shares_for(self());
  }
  UnmaskRequest request() {
    reach(SecurePhase::unmasking);
    return trial.server.request_for(self());
  }
  /// After a refusal the true message is accepted.
  void expect_goes_on() {
    const Status status = trial.run();
    ASSERT_TRUE(status.has_value()) << status.error().message;
    EXPECT_EQ(trial.server.sum(), trial.plain_sum());
  }

  SecureTrial trial;
};

class CheckedLyingServer : public LyingServer {
 protected:
  CheckedLyingServer() : LyingServer(true) {}
};

TEST_F(LyingServer, RepeatsAnOldRound) {
  SecureHistory& history = trial.histories[self()];
  EXPECT_EQ(history.last_round, 9);
  expect_refused(MaskingClient::join(trial.client_options(self()), history), "an old round");
  history.last_round = 10;
  expect_refused(MaskingClient::join(trial.client_options(self()), history), "an old round");
  history.last_round = 8;
  EXPECT_TRUE(MaskingClient::join(trial.client_options(self()), history).has_value());
}

TEST_F(LyingServer, OffersLessThanTheClientAccepts) {
  MaskingClientOptions options = trial.client_options(self());
  SecureHistory history;
  for (const SecurePolicy& least :
       {SecurePolicy{5, 3, false}, SecurePolicy{4, 4, false}, SecurePolicy{4, 3, true}}) {
    options.least = least;
    expect_refused(MaskingClient::join(options, history), "less than it accepts");
  }
  EXPECT_EQ(history.last_round, -1);
  options.least = {4, 3, false};
  EXPECT_TRUE(MaskingClient::join(options, history).has_value());
  options.policy = {.neighbours = 4, .threshold = 2};
  EXPECT_EQ(MaskingClient::join(options, history).error().kind, ErrorKind::invalid_argument);
}

TEST_F(LyingServer, GivesTheRosterOfAnotherRound) {
  Roster lie = roster();
  lie.round = 8;
  expect_refused(client().on_roster(lie), "the roster is of round 8");
  expect_goes_on();
}

TEST_F(LyingServer, LeavesTheClientOut) {
  Roster lie = roster();
  std::erase_if(lie.members, [&](const auto& member) { return member.client == self(); });
  expect_refused(client().on_roster(lie), "lacks the client itself");
  expect_goes_on();
}

TEST_F(LyingServer, ChangesTheClientsOwnKey) {
  Roster lie = roster();
  for (auto& member : lie.members)
    if (member.client == self()) member.keys[4] ^= std::byte{1};
  expect_refused(client().on_roster(lie), "another key in place of the client's own");
  expect_goes_on();
}

TEST_F(LyingServer, GivesAClientTwice) {
  Roster lie = roster();
  lie.members.insert(lie.members.begin(), lie.members.front());
  expect_refused(client().on_roster(lie), "has a client twice");
  expect_goes_on();
}

TEST_F(LyingServer, GivesAKeyTwice) {
  Roster lie = roster();
  lie.members[0].keys = lie.members[6].keys;
  expect_refused(client().on_roster(lie), "has a key twice");
  expect_goes_on();
}

/// With digests that fit: of another neighbour, and of small order. All others are neighbours.
TEST(LyingServers, GivesKeysThatAreNone) {
  SecureTrial trial({});
  ASSERT_TRUE(trial.run_until(SecurePhase::shares).has_value());
  Roster lie = trial.server.roster_for(trial.id(2));
  Roster::Neighbour& neighbour = lie.neighbours[1];
  neighbour.masking = lie.neighbours[0].masking;
  for (auto& member : lie.members) {
    if (member.client == neighbour.client)
      member.keys = digest_of_keys(member.client, neighbour.channel, neighbour.masking);
  }
  expect_refused(trial.client(2).on_roster(lie), "a key of another one");
  neighbour.masking = {};  // A key of small order.
  for (auto& member : lie.members) {
    if (member.client == neighbour.client)
      member.keys = digest_of_keys(member.client, neighbour.channel, neighbour.masking);
  }
  expect_refused(trial.client(2).on_roster(lie), "is of small order");
}

TEST_F(LyingServer, GivesARosterOfTwo) {
  Roster lie = roster();
  const ClientId other = lie.neighbours[0].client;
  std::erase_if(lie.members, [&](const auto& member) {
    return member.client != self() && member.client != other;
  });
  lie.neighbours.resize(1);
  expect_refused(client().on_roster(lie), "the roster has 2 clients");
  expect_goes_on();
}

TEST_F(LyingServer, ChoosesTheNeighbours) {
  Roster lie = roster();
  const auto stranger = std::ranges::find_if(lie.members, [&](const auto& member) {
    return member.client != self() &&
           std::ranges::none_of(lie.neighbours, [&](const auto& neighbour) {
             return neighbour.client == member.client;
           });
  });
  lie.neighbours[2].client = stranger->client;
  std::ranges::sort(lie.neighbours, {}, &Roster::Neighbour::client);
  expect_refused(client().on_roster(lie), "not those of the graph");
  Roster fewer = roster();
  fewer.neighbours.pop_back();
  expect_refused(client().on_roster(fewer), "not those of the graph");
  expect_goes_on();
}

TEST_F(LyingServer, GivesANeighboursKeyThatIsNotInTheRoster) {
  Roster lie = roster();
  lie.neighbours[1].masking[0] ^= std::byte{1};
  expect_refused(client().on_roster(lie), "are others than those in the roster");
  expect_goes_on();
}

TEST_F(LyingServer, GivesTheRosterTwice) {
  const Roster truth = roster();
  const SealedShares shares = client().on_roster(truth).value();
  expect_refused(client().on_roster(truth), "a second time");
  expect_refused(client().advertise(), "a second time");
  ASSERT_TRUE(trial.server.on_shares(self(), shares).has_value());
  expect_goes_on();
}

TEST_F(LyingServer, AltersShares) {
  ForwardedShares lie = shares();
  for (const std::size_t byte : {std::size_t{0}, std::size_t{50}, std::size_t{81}}) {
    lie = trial.server.shares_for(self());
    lie.shares[1].share[byte] ^= std::byte{1};
    expect_refused(client().on_shares(lie), "are not what it sealed for this one");
  }
  expect_goes_on();
}

TEST_F(LyingServer, SwapsShares) {
  ForwardedShares lie = shares();
  std::swap(lie.shares[0].share, lie.shares[1].share);
  expect_refused(client().on_shares(lie), "are not what it sealed for this one");
  // For another client.
  ForwardedShares other = trial.server.shares_for(self());
  const ClientId from = other.shares[0].client;
  const ClientId receiver = [&] {
    for (int number = 0; number < 7; ++number) {
      if (trial.id(number) == self()) continue;
      const auto theirs = trial.server.shares_for(trial.id(number)).shares;
      for (const auto& each : theirs)
        if (each.client == from) return trial.id(number);
    }
    return self();
  }();
  for (const auto& each : trial.server.shares_for(receiver).shares)
    if (each.client == from) other.shares[0].share = each.share;
  ASSERT_NE(receiver, self());
  expect_refused(client().on_shares(other), "are not what it sealed for this one");
  expect_goes_on();
}

TEST_F(LyingServer, WithholdsOrRepeatsShares) {
  ForwardedShares few = shares();
  ASSERT_EQ(few.shares.size(), 4);
  few.shares.resize(2);
  expect_refused(client().on_shares(few), "2 neighbours have sent shares, fewer");
  ForwardedShares twice = trial.server.shares_for(self());
  twice.shares[1] = twice.shares[0];
  expect_refused(client().on_shares(twice), "come twice");
  ForwardedShares stranger = trial.server.shares_for(self());
  stranger.shares[3].client = 1000;
  expect_refused(client().on_shares(stranger), "is no neighbour");
  expect_goes_on();
}

TEST_F(LyingServer, GivesSharesBeforeTheRoster) {
  reach(SecurePhase::shares);
  expect_refused(client().on_shares({.round = 9, .shares = {}}), "too early");
  expect_refused(client().mask(trial.inputs[self()]), "too early");
  expect_refused(client().on_unmask_request({.round = 9}), "too early");
  expect_goes_on();
}

TEST_F(LyingServer, AsksForASecondMaskedVector) {
  ASSERT_TRUE(client().on_shares(shares()).has_value());
  auto other = trial.inputs[self()];
  const MaskedInput input = client().mask(other).value();
  other[0].set(0, other[0][0] + 1);
  expect_refused(client().mask(other), "a second time");
  expect_refused(client().on_shares(trial.server.shares_for(self())), "a second time");
  ASSERT_TRUE(trial.server.on_masked(self(), input).has_value());
  expect_goes_on();
}

TEST_F(LyingServer, AsksForAVectorOfAnotherSize) {
  ASSERT_TRUE(client().on_shares(shares()).has_value());
  std::vector<ModularVector> other = trial.inputs[self()];
  other[0] = ModularVector(6, 16);
  EXPECT_EQ(client().mask(other).error().kind, ErrorKind::invalid_argument);
  other[0] = ModularVector(5, 15);
  EXPECT_FALSE(client().mask(other).has_value());
  other.resize(1);
  EXPECT_FALSE(client().mask(other).has_value());
}

TEST_F(LyingServer, SaysThatAClientIsBothAliveAndDead) {
  UnmaskRequest lie = request();
  lie.dead = {lie.alive[1]};
  expect_refused(client().on_unmask_request(lie),
                 "client " + std::to_string(lie.dead[0]) + " is said to be both alive and dead");
  expect_goes_on();
}

TEST_F(LyingServer, UnmasksTwice) {
  const UnmaskRequest truth = request();
  const UnmaskingShares answer = client().on_unmask_request(truth).value();
  expect_refused(client().on_unmask_request(truth), "a second time");
  UnmaskRequest other = truth;  // The other share of a client.
  other.dead = {other.alive.back()};
  other.alive.pop_back();
  expect_refused(client().on_unmask_request(other), "a second time");
  ASSERT_TRUE(trial.server.on_unmasking(self(), answer).has_value());
  expect_goes_on();
}

TEST_F(LyingServer, AsksForSharesOfFewOfStrangersOrTwice) {
  UnmaskRequest few = request();
  few.alive.resize(2);
  expect_refused(client().on_unmask_request(few), "2 neighbours are said to be alive");
  UnmaskRequest stranger = trial.server.request_for(self());
  stranger.dead = {1000};
  expect_refused(client().on_unmask_request(stranger), "client 1000 is no neighbour");
  UnmaskRequest own = trial.server.request_for(self());
  own.dead = {self()};
  expect_refused(client().on_unmask_request(own), "is no neighbour that has sent shares");
  UnmaskRequest twice = trial.server.request_for(self());
  twice.alive[1] = twice.alive[0];
  expect_refused(client().on_unmask_request(twice), "a client twice");
  UnmaskRequest old = trial.server.request_for(self());
  old.round = 3;
  expect_refused(client().on_unmask_request(old), "is of round 3");
  expect_goes_on();
}

/// Shares of a neighbour that never sent any: it has no masks in common with this one.
TEST_F(LyingServer, AsksForSharesOfOneThatVanishedBeforeItSentThem) {
  const ClientId gone = roster().neighbours[0].client;
  trial.options.vanishes = [&](ClientId each, SecurePhase phase) {
    return each == gone && phase >= SecurePhase::shares;
  };
  UnmaskRequest lie = request();
  EXPECT_TRUE(lie.dead.empty());
  lie.dead = {gone};
  expect_refused(client().on_unmask_request(lie), "is no neighbour that has sent shares");
  expect_goes_on();
}

TEST_F(LyingServer, AsksForASignatureThoughItIsNotChecked) {
  reach(SecurePhase::unmasking);
  expect_refused(client().on_alive_list({.round = 9}), "without a check");
}

TEST_F(CheckedLyingServer, GivesKeysThatAreNotSigned) {
  Roster lie = roster();
  (*lie.neighbours[1].signature)[0] ^= std::byte{1};
  expect_refused(client().on_roster(lie), "has not signed its keys");
  lie.neighbours[1].signature.reset();
  expect_refused(client().on_roster(lie), "has not signed its keys");
  expect_goes_on();
}

/// A man in the middle: keys of its own in place of a client's, with a digest that fits.
TEST_F(CheckedLyingServer, ReplacesAKey) {
  Roster lie = roster();
  Roster::Neighbour& neighbour = lie.neighbours[1];
  neighbour.masking = AgreementKey::of(Secret::draw(test::seeded_bytes(1)).value())->shared();
  for (auto& member : lie.members) {
    if (member.client == neighbour.client)
      member.keys = digest_of_keys(member.client, neighbour.channel, neighbour.masking);
  }
  expect_refused(client().on_roster(lie), "has not signed its keys");
  expect_goes_on();
}

TEST_F(CheckedLyingServer, GivesListsThatAreNone) {
  reach(SecurePhase::agreeing);
  const AliveList truth = trial.server.alive_list();
  const auto refused = [&](const AliveList& lie, std::string_view reason) {
    expect_refused(client().on_alive_list(lie), reason);
  };
  AliveList lie = truth;
  std::erase(lie.alive, self());
  refused(lie, "lacks the client itself");
  lie = truth;
  lie.alive.back() = 1000;
  refused(lie, "not in the roster");
  lie = truth;
  lie.alive[1] = lie.alive[0];
  refused(lie, "a client twice");
  lie.alive = {self()};
  refused(lie, "fewer than the threshold");
  expect_refused(client().on_unmask_request({.round = 9}), "too early");
  expect_goes_on();
}

/// The attack that the check is against: others are told that some are dead.
TEST_F(CheckedLyingServer, TellsOthersAnotherList) {
  reach(SecurePhase::agreeing);
  const AliveList truth = trial.server.alive_list();
  ASSERT_TRUE(client().on_alive_list(truth).has_value());
  expect_refused(client().on_alive_list(truth), "a second time");
  std::vector<ClientId> another = truth.alive;
  another.pop_back();
  UnmaskRequest lie{.round = 9, .alive = truth.alive, .dead = {}, .signatures = {}};
  std::erase(lie.alive, self());
  for (const ClientId signer : lie.alive)
    lie.signatures.push_back({signer, trial.sign(signer, signed_list(9, another))});
  expect_refused(client().on_unmask_request(lie), "has not signed the same list");
  for (auto& each : lie.signatures)
    each.signature = trial.sign(each.client, signed_list(9, truth.alive));
  UnmaskRequest few = lie;
  few.signatures.resize(4);
  expect_refused(client().on_unmask_request(few), "4 neighbours have signed the list, fewer");
  few.signatures.push_back(few.signatures.back());
  expect_refused(client().on_unmask_request(few), "a signature comes twice");
  UnmaskRequest dead = lie;
  dead.dead = {dead.alive.back()};
  dead.alive.pop_back();
  expect_refused(client().on_unmask_request(dead), "is dead, and in the list");
  EXPECT_TRUE(client().on_unmask_request(lie).has_value());
}

TEST_F(CheckedLyingServer, CallsOneAliveThatIsNotInTheList) {
  reach(SecurePhase::agreeing);
  AliveList list = trial.server.alive_list();
  UnmaskRequest lie{.round = 9, .alive = list.alive, .dead = {}, .signatures = {}};
  std::erase(lie.alive, self());
  list.alive.pop_back();
  ASSERT_TRUE(client().on_alive_list(list).has_value());
  expect_refused(client().on_unmask_request(lie), "is alive, and not in the list");
}

TEST(LyingServers, TellsOneClientAnotherPlan) {
  SecureTrial trial({});
  MaskingClientOptions told = trial.client_options(trial.id(1));
  told.task = digest_of_task(1, "{\"learning_rate\": 0}");
  SecureHistory history;
  trial.clients.at(trial.id(1)) = MaskingClient::join(told, history).value();
  ASSERT_TRUE(trial.run().has_value());
  EXPECT_NE(trial.server.sum(), trial.plain_sum());
}

/// The same keys, signed for another plan.
TEST(LyingServers, TellsTheOthersAnotherPlanAndClientsSignTheirs) {
  SecureTrialOptions options{.policy = {.neighbours = 4, .threshold = 3, .active = true}};
  SecureTrial trial(options);
  options.task = digest_of_task(1, "{\"learning_rate\": 0}");
  SecureTrial others(options);
  ASSERT_TRUE(trial.run_until(SecurePhase::shares).has_value());
  ASSERT_TRUE(others.run_until(SecurePhase::shares).has_value());
  expect_refused(trial.client(1).on_roster(others.server.roster_for(trial.id(1))),
                 "was told another plan or model");
  EXPECT_TRUE(trial.run().has_value());
}

TEST(MaskingClient, FailsWithoutRandomBytes) {
  SecureTrial trial({});
  MaskingClientOptions options = trial.client_options(trial.id(0));
  options.random = [](Bytes) -> Status { return failure(ErrorKind::system, "no bytes"); };
  SecureHistory history;
  MaskingClient client = MaskingClient::join(options, history).value();
  EXPECT_EQ(client.advertise().error().kind, ErrorKind::system);
}

TEST(MaskingClient, NeedsSigningKeysToCheckTheServer) {
  SecureTrial trial({});
  MaskingClientOptions options = trial.client_options(trial.id(0));
  options.policy = {.neighbours = 4, .threshold = 3, .active = true};
  options.signing_keys = nullptr;
  SecureHistory history;
  expect_refused(MaskingClient::join(options, history), "no signing keys");
}

}  // namespace
}  // namespace gradwire::federated

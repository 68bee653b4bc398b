#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/federated/secure_trial.h"
#include "tests/support/seeds.h"

namespace gradwire::federated {
namespace {

using test::SecureTrial;
using test::SecureTrialOptions;

constexpr std::array kPhases{SecurePhase::keys, SecurePhase::shares, SecurePhase::masked,
                             SecurePhase::unmasking};

/// Vanishes a random part of the clients at the beginning of `phase`, or each at the beginning of
/// one of the four if that is `done`.
SecureTrialOptions with_vanishing(SecureTrialOptions options, int count, SecurePhase phase) {
  std::vector<ClientId> clients;
  for (int number = 0; number < options.clients; ++number) clients.push_back(7 * number + 3);
  std::map<ClientId, SecurePhase> ends;
  for (const ClientId client :
       test::random_part(clients, static_cast<std::size_t>(count), options.seed))
    ends[client] = phase == SecurePhase::done ? kPhases[ends.size() % kPhases.size()] : phase;
  options.vanishes = [ends](ClientId client, SecurePhase now) {
    const auto found = ends.find(client);
    return found != ends.end() && found->second <= now;
  };
  return options;
}

void expect_plain_sum(const SecureTrialOptions& options, std::size_t counted) {
  SecureTrial trial(options);
  const Status status = trial.run();
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(trial.server.counted().size(), counted);
  EXPECT_EQ(trial.server.sum(), trial.plain_sum());
}

class SecureSum : public testing::TestWithParam<SecurePhase> {};

TEST_P(SecureSum, OfThirtyClientsIsThePlainSumThoughAThirdVanishes) {
  const SecureTrialOptions options{.clients = 30,
                                   .policy = {.neighbours = 29, .threshold = 16},
                                   .shapes = {{1000, 13}, {6, 64}, {10, 30}}};
  const std::map<SecurePhase, std::size_t> counted{
      {SecurePhase::unmasking, 30}, {SecurePhase::done, 22}};  // Two of ten at its beginning.
  const auto found = counted.find(GetParam());
  expect_plain_sum(with_vanishing(options, 10, GetParam()),
                   found == counted.end() ? 20 : found->second);
}

TEST_P(SecureSum, OfManyClientsIsThePlainSumThoughAThirdVanishes) {
  const SecurePolicy policy =
      find_policy({.clients = 256, .dropping = 85.0 / 256, .colluding = 0.05}).value();
  EXPECT_EQ(policy.threshold, policy.neighbours / 2 + 1);
  const SecureTrialOptions options{
      .clients = 256, .policy = policy, .shapes = {{300, 16}, {6, 64}}, .threads = 2};
  const std::map<SecurePhase, std::size_t> counted{{SecurePhase::unmasking, 256},
                                                   {SecurePhase::done, 192}};
  const auto found = counted.find(GetParam());
  expect_plain_sum(with_vanishing(options, 85, GetParam()),
                   found == counted.end() ? 171 : found->second);
}

INSTANTIATE_TEST_SUITE_P(VanishingBefore, SecureSum,
                         testing::Values(SecurePhase::keys, SecurePhase::shares,
                                         SecurePhase::masked, SecurePhase::unmasking,
                                         SecurePhase::done),
                         [](const auto& phase) {
                           return phase.param == SecurePhase::done
                                      ? std::string("each")
                                      : std::string(name_of(phase.param));
                         });

TEST(CheckedSecureSum, IsThePlainSumThoughASixthVanishes) {
  const SecurePolicy policy =
      find_policy({.clients = 64, .dropping = 1.0 / 6, .colluding = 0.05, .active = true}).value();
  EXPECT_GT(3 * policy.threshold, 2 * policy.neighbours);
  for (const SecurePhase phase : {SecurePhase::masked, SecurePhase::agreeing, SecurePhase::done}) {
    const SecureTrialOptions options{.clients = 64, .policy = policy};
    const std::size_t counted = phase == SecurePhase::masked     ? 54
                                : phase == SecurePhase::agreeing ? 64
                                                                 : 64 - 8;  // Two at the end.
    expect_plain_sum(with_vanishing(options, 10, phase), counted);
  }
}

TEST(CheckedSecureSum, OfThirtyClientsToo) {
  const SecureTrialOptions options{.clients = 30,
                                   .policy = {.neighbours = 29, .threshold = 20, .active = true}};
  expect_plain_sum(with_vanishing(options, 5, SecurePhase::masked), 25);
  expect_plain_sum(with_vanishing(options, 5, SecurePhase::unmasking), 30);
}

TEST(SecureRound, IsAbandonedBelowTheThreshold) {
  for (const SecurePhase phase :
       {SecurePhase::keys, SecurePhase::shares, SecurePhase::masked, SecurePhase::unmasking}) {
    const SecureTrialOptions options{.clients = 9, .policy = {.neighbours = 8, .threshold = 6}};
    SecureTrial enough(with_vanishing(options, 2, phase));
    EXPECT_TRUE(enough.run().has_value()) << name_of(phase);
    EXPECT_EQ(enough.server.sum(), enough.plain_sum());
    SecureTrial trial(with_vanishing(options, 3, phase));
    const Status status = trial.run();
    ASSERT_FALSE(status.has_value()) << name_of(phase);
    EXPECT_EQ(status.error().kind, ErrorKind::aborted);
    EXPECT_EQ(trial.server.phase(), SecurePhase::abandoned);
    EXPECT_TRUE(trial.server.awaited().empty());
  }
}

TEST(SecureRound, IsAbandonedBelowTheLeastNumber) {
  SecureTrialOptions options{.clients = 9, .policy = {.neighbours = 8, .threshold = 5}, .least = 8};
  SecureTrial enough(with_vanishing(options, 1, SecurePhase::masked));
  EXPECT_TRUE(enough.run().has_value());
  SecureTrial trial(with_vanishing(options, 2, SecurePhase::masked));
  EXPECT_EQ(trial.run().error().kind, ErrorKind::aborted);
}

TEST(SecureRound, DoesNotDependOnThreads) {
  SecureTrialOptions options = with_vanishing(
      {.clients = 12, .policy = {.neighbours = 11, .threshold = 6}, .shapes = {{200'001, 20}}}, 4,
      SecurePhase::masked);
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    SecureTrial trial(options);
    ASSERT_TRUE(trial.run().has_value());
    EXPECT_EQ(trial.server.sum(), trial.plain_sum());
  }
}

TEST(SecureRound, RecoversFromOneFalseShare) {
  SecureTrial trial(with_vanishing({.clients = 12, .policy = {.neighbours = 11, .threshold = 7}}, 2,
                                   SecurePhase::masked));
  ClientId liar = -1;
  trial.tamper = [&](ClientId client, UnmaskingShares& shares) {
    if (liar == -1) liar = client;
    if (liar != client) return;
    for (Share& share : shares.shares) share[32] ^= std::byte{1};
  };
  ASSERT_TRUE(trial.run().has_value());
  EXPECT_EQ(trial.server.sum(), trial.plain_sum());
}

TEST(SecureRound, IsAbandonedRatherThanWrongIfSharesAreFalse) {
  for (const bool of_keys : {false, true}) {
    SecureTrial trial(with_vanishing({.clients = 12, .policy = {.neighbours = 11, .threshold = 9}},
                                     2, SecurePhase::masked));
    trial.tamper = [&](ClientId, UnmaskingShares& shares) {
      (of_keys ? shares.shares.back() : shares.shares.front())[20] ^= std::byte{1};
    };
    const Status status = trial.run();
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find("do not give the secret"), std::string::npos);
  }
}

TEST(UnmaskingServer, RefusesWhatAClientMayNotSendWithoutHarm) {
  SecureTrial trial({.clients = 6, .policy = {.neighbours = 5, .threshold = 3}});
  UnmaskingServer& server = trial.server;
  const auto refused = [](const Status& status, std::string_view reason) {
    EXPECT_FALSE(status.has_value()) << reason;
    if (status) return;
    EXPECT_EQ(status.error().kind, ErrorKind::refused);
    EXPECT_NE(status.error().message.find(reason), std::string::npos) << status.error().message;
  };
  const ClientId first = trial.id(0), second = trial.id(1);
  const KeyAdvert advert = trial.client(0).advertise().value();
  ASSERT_TRUE(server.on_advert(first, advert).has_value());
  refused(server.on_advert(first, advert), "sent one already");
  refused(server.on_advert(second, advert), "the same key");
  refused(server.on_advert(4, advert), "takes no part");
  KeyAdvert old = trial.client(1).advertise().value();
  const KeyAdvert current = old;
  old.round = 8;
  refused(server.on_advert(second, old), "of round 8");
  refused(server.on_masked(second, {.round = 9, .segments = trial.inputs[second]}), "phase masked");
  ASSERT_TRUE(server.on_advert(second, current).has_value());
  for (int number = 2; number < 6; ++number) {
    ASSERT_TRUE(
        server.on_advert(trial.id(number), trial.client(number).advertise().value()).has_value());
  }
  ASSERT_TRUE(server.close_phase().has_value());
  refused(server.on_shares(first, {.round = 9, .shares = {}}), "not for 5");
  ASSERT_TRUE(trial.run_until(SecurePhase::masked).has_value());
  refused(server.on_masked(first, {.round = 9, .segments = {ModularVector(4, 16)}}),
          "other segments");
  ASSERT_TRUE(trial.run_until(SecurePhase::unmasking).has_value());
  refused(server.on_unmasking(first, {.round = 9, .shares = std::vector<Share>(4)}),
          "does not have the shares");
  Share large{};
  large[0] = std::byte{2};
  refused(server.on_unmasking(first, {.round = 9, .shares = std::vector<Share>(5, large)}),
          "does not have the shares");
  ASSERT_TRUE(trial.run().has_value());
  EXPECT_EQ(server.sum(), trial.plain_sum());
}

TEST(UnmaskingServer, RefusesKeysAndListsThatAreNotSigned) {
  SecureTrial trial({.clients = 6, .policy = {.neighbours = 5, .threshold = 4, .active = true}});
  KeyAdvert advert = trial.client(0).advertise().value();
  (*advert.signature)[3] ^= std::byte{1};
  EXPECT_FALSE(trial.server.on_advert(trial.id(0), advert).has_value());
  advert.signature.reset();
  EXPECT_FALSE(trial.server.on_advert(trial.id(0), advert).has_value());
  trial.options.vanishes = [&](ClientId client, SecurePhase) { return client == trial.id(0); };
  ASSERT_TRUE(trial.run_until(SecurePhase::agreeing).has_value());
  AliveSignature signature{.round = 9};
  signature.signature = trial.sign(trial.id(1), signed_list(9, {}));
  EXPECT_FALSE(trial.server.on_signature(trial.id(1), signature).has_value());
  ASSERT_TRUE(trial.run().has_value());
  EXPECT_EQ(trial.server.sum(), trial.plain_sum());
}

TEST(UnmaskingServer, RefusesAPolicyOrCohortThatCannotBe) {
  EXPECT_THROW(UnmaskingServer({.policy = {.neighbours = 4, .threshold = 2}, .cohort = {1, 2, 3}}),
               Exception);
  EXPECT_THROW(UnmaskingServer({.policy = {.neighbours = 2, .threshold = 2}, .cohort = {1, 2, 2}}),
               Exception);
}

/// Pearson's statistic of the packed bytes against the uniform distribution.
double chi_squared_of_bytes(const ModularVector& vector) {
  std::vector<std::byte> bytes;
  vector.append_packed(bytes);
  std::array<double, 256> counts{};
  for (const std::byte byte : bytes) ++counts[static_cast<std::size_t>(byte)];
  const double expected = static_cast<double>(bytes.size()) / 256;
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(SecureView, MaskedInputsAreUniform) {
  SecureTrial trial({.clients = 5, .shapes = {{100'000, 16}}});
  for (auto& [client, input] : trial.inputs) input = {ModularVector(100'000, 16)};  // Zeros.
  ASSERT_TRUE(trial.run().has_value());
  // 255 degrees of freedom: mean 255, standard deviation 22.6; six of them around.
  for (const auto& [client, input] : trial.masked) {
    const double found = chi_squared_of_bytes(input.segments[0]);
    EXPECT_GT(found, 255 - 6 * 22.6) << "client " << client;
    EXPECT_LT(found, 255 + 6 * 22.6) << "client " << client;
  }
  EXPECT_GT(chi_squared_of_bytes(trial.server.sum()[0]), 1e6);
}

TEST(SecureView, AnotherInputChangesNothingElse) {
  const SecureTrialOptions options{.clients = 6, .policy = {.neighbours = 4, .threshold = 3}};
  SecureTrial trial(options), other(options);
  const ClientId changed = other.id(2);
  other.inputs[changed][0].set(1, other.inputs[changed][0][1] + 5);
  ASSERT_TRUE(trial.run().has_value());
  ASSERT_TRUE(other.run().has_value());
  EXPECT_EQ(trial.received, other.received);
  for (const auto& [client, input] : trial.masked)
    EXPECT_EQ(input == other.masked.at(client), client != changed) << "client " << client;
}

/// Bytes that one client sends and receives beside its contribution.
struct SecureBytes {
  std::size_t up = 0, down = 0;
  bool operator==(const SecureBytes&) const = default;
};

/// The most, with all neighbours in all phases.
SecureBytes predicted_bytes(std::size_t clients, std::size_t neighbours) {
  const auto size_of = [](const auto& message) { return encode(message).size(); };
  return {.up = size_of(KeyAdvert()) +
                size_of(SealedShares{0, std::vector<SealedShare>(neighbours)}) +
                encode(MaskedInput()).size() +
                size_of(UnmaskingShares{0, std::vector<Share>(neighbours)}),
          .down = size_of(Roster{0, std::vector<Roster::Member>(clients),
                                 std::vector<Roster::Neighbour>(neighbours)}) +
                  size_of(ForwardedShares{0, std::vector<ForwardedShares::From>(neighbours)}) +
                  size_of(UnmaskRequest{0, std::vector<ClientId>(neighbours), {}, {}})};
}

SecureBytes measured_bytes(SecureTrial& trial, int number) {
  const ClientId id = trial.id(number);
  SecureBytes bytes;
  const auto down = [&](const auto& message) { bytes.down += encode(message).size(); };
  EXPECT_TRUE(trial.run_until(SecurePhase::shares).has_value());
  down(trial.server.roster_for(id));
  EXPECT_TRUE(trial.run_until(SecurePhase::masked).has_value());
  down(trial.server.shares_for(id));
  EXPECT_TRUE(trial.run_until(SecurePhase::unmasking).has_value());
  down(trial.server.request_for(id));
  EXPECT_TRUE(trial.run().has_value());
  for (const std::vector<std::byte>& message : trial.received) bytes.up += message.size();
  bytes.up /= trial.clients.size();
  bytes.up += encode(trial.masked.at(id)).size();
  for (const SegmentShape& shape : trial.options.shapes)
    bytes.up -= ModularVector::packed_bytes(shape.size, shape.bits);
  return bytes;
}

TEST(SecureRound, AddsFewBytes) {
  SecureTrial trial({.clients = 9, .policy = {.neighbours = 6, .threshold = 4}});
  EXPECT_EQ(measured_bytes(trial, 3), predicted_bytes(9, 6));
  const auto update = static_cast<double>(ModularVector::packed_bytes(200'000, 16));
  for (const auto& [dropping, most] : {std::pair{1.0 / 3, 0.04}, std::pair{0.1, 0.02}}) {
    const SecurePolicy policy =
        find_policy({.clients = 256, .dropping = dropping, .colluding = 0.05}).value();
    const SecureBytes bytes = predicted_bytes(256, static_cast<std::size_t>(policy.neighbours));
    EXPECT_LE(static_cast<double>(bytes.up) / update, most) << policy.neighbours;
    EXPECT_LE(static_cast<double>(bytes.down) / update, 1.6 * most) << policy.neighbours;
    RecordProperty(fmt::format("up_{}", policy.neighbours), static_cast<int>(bytes.up));
    RecordProperty(fmt::format("down_{}", policy.neighbours), static_cast<int>(bytes.down));
  }
}

}  // namespace
}  // namespace gradwire::federated

#include "gradwire/bootstrap/handshake/handshake.h"

#include <map>
#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::bootstrap {
namespace {

using test::connected_pair;
using test::SocketPair;
using testing::AllOf;
using testing::HasSubstr;

const SharedSecret kShared = {.secret = "open sesame", .purpose = "test"};
const Claims kClaims = {.from = 3, .to = 1, .world_size = 5, .rail = 2};

Verdict accept_all(const Claims&) {
  return Verdict::accepted;
}

/// Advances one side and keeps its first error. Returns false once nothing is left to do.
bool move_on(Handshake& side, Status& status) {
  if (!status || side.done()) return false;
  net::wait_for(side.socket(), side.wanted_events(),
                net::Deadline::after(test::kClock, std::chrono::milliseconds(20)));
  status = side.advance();
  return true;
}

struct Outcome {
  Status client;
  Status server;
  bool client_done = false;
  bool server_done = false;
  Claims claims;
  net::SessionKey client_key = {};
  net::SessionKey server_key = {};
};

/// Runs both sides alternately until each is done or has failed.
Outcome shake(const SharedSecret& at_client, const Credentials& at_server,
              const ServerHandshake::Admit& admit = accept_all, int world_size = 5,
              const Claims& claims = kClaims) {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", at_client, claims);
  ServerHandshake server(std::move(pair.second), "the client", at_server, world_size, admit);
  Outcome outcome;
  for (int turn = 0; turn < 1000; ++turn) {
    const bool client_moved = move_on(client, outcome.client);
    const bool server_moved = move_on(server, outcome.server);
    if (!client_moved && !server_moved) break;
  }
  outcome.client_done = client.done();
  outcome.server_done = server.done();
  outcome.claims = server.claims();
  outcome.client_key = client.session_key();
  outcome.server_key = server.session_key();
  return outcome;
}

TEST(Handshake, EndsWithBothSidesSureAndTheClaimsKnown) {
  const Outcome outcome = shake(kShared, one_secret(kShared));
  ASSERT_TRUE(outcome.client) << outcome.client.error().message;
  ASSERT_TRUE(outcome.server) << outcome.server.error().message;
  EXPECT_TRUE(outcome.client_done);
  EXPECT_TRUE(outcome.server_done);
  EXPECT_EQ(outcome.claims.from, 3);
  EXPECT_EQ(outcome.claims.to, 1);
  EXPECT_EQ(outcome.claims.world_size, 5);
  EXPECT_EQ(outcome.claims.rail, 2);
  EXPECT_EQ(outcome.client_key, outcome.server_key);
  EXPECT_NE(outcome.client_key, net::SessionKey{});
  EXPECT_NE(outcome.client_key, shake(kShared, one_secret(kShared)).client_key)
      << "of another connection";
}

TEST(Handshake, EncryptionAtOneEndOnlyIsReportedAtBoth) {
  const Outcome outcome = shake(kShared, one_secret(kShared), [](const Claims& claims) {
    return claims.encrypts ? Verdict::accepted : Verdict::other_encryption;
  });
  for (const Status* side : {&outcome.client, &outcome.server}) {
    ASSERT_FALSE(*side);
    EXPECT_EQ(side->error().kind, ErrorKind::mismatch);
    EXPECT_THAT(side->error().message, AllOf(HasSubstr("rank 3"), HasSubstr("does not encrypt"),
                                             HasSubstr("the same GRADWIRE_ENCRYPTION")));
  }
}

TEST(Handshake, EachClientMayHaveItsOwnSecret) {
  // Clients with ids, as of a server that is no rank.
  const std::map<Rank, std::string> secrets{{7, "of seven"}, {1'000'000, "of a million"}};
  const Credentials credentials = [&](const Claims& claims) -> std::optional<SharedSecret> {
    const auto found = secrets.find(claims.from);
    if (found == secrets.end()) return std::nullopt;
    return SharedSecret{.secret = found->second, .purpose = "round"};
  };
  const auto shake_as = [&](Rank id, const std::string& secret) {
    return shake({.secret = secret, .purpose = "round"}, credentials, accept_all, kNoWorld,
                 {.from = id});
  };
  for (const auto& [id, secret] : secrets) {
    const Outcome outcome = shake_as(id, secret);
    EXPECT_TRUE(outcome.client_done && outcome.server_done) << id;
    EXPECT_EQ(outcome.claims.from, id);
    EXPECT_EQ(outcome.client_key, outcome.server_key);
  }
  const Outcome wrong = shake_as(7, "of a million");
  EXPECT_FALSE(wrong.server_done);
  for (const std::string guess : {"", "of seven"}) {  // An unknown client learns no more.
    const Outcome unknown = shake_as(8, guess);
    EXPECT_FALSE(unknown.server_done);
    ASSERT_FALSE(unknown.client.has_value());
    EXPECT_EQ(unknown.client.error().message, wrong.client.error().message);
    EXPECT_EQ(unknown.server.error().message, wrong.server.error().message);
  }
}

TEST(Handshake, TakesNoByteThatComesAfterIt) {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", kShared, kClaims);
  ServerHandshake server(std::move(pair.second), "the client", one_secret(kShared), 5, accept_all);
  Status status;
  while (!server.done()) {
    ASSERT_TRUE(move_on(client, status));
    ASSERT_TRUE(move_on(server, status));
  }
  // The server is done one step before the client, and may send at once.
  ASSERT_EQ(::send(server.socket().descriptor(), "frame", 5, MSG_NOSIGNAL), 5);
  while (move_on(client, status)) continue;
  ASSERT_TRUE(client.done());
  char buffer[10];
  ASSERT_TRUE(net::wait_for(client.socket(), POLLIN, test::soon_enough()));
  EXPECT_EQ(::recv(client.socket().descriptor(), buffer, sizeof buffer, MSG_DONTWAIT), 5);
}

TEST(Handshake, WrongSecretIsRefusedOnBothSides) {
  const Outcome outcome = shake({.secret = "open barley", .purpose = "test"}, one_secret(kShared));
  for (const Status* side : {&outcome.client, &outcome.server}) {
    ASSERT_FALSE(*side);
    EXPECT_EQ(side->error().kind, ErrorKind::refused);
    EXPECT_THAT(side->error().message,
                HasSubstr("wrong secret: give every rank the same GRADWIRE_SECRET"));
  }
}

TEST(Handshake, AnotherPurposeIsRefused) {
  const Outcome outcome = shake({.secret = "open sesame", .purpose = "tes"}, one_secret(kShared));
  EXPECT_FALSE(outcome.client);
  EXPECT_FALSE(outcome.server);
}

TEST(Handshake, SecretAndPurposeDoNotRunTogether) {
  const Outcome outcome = shake({.secret = "open sesame", .purpose = "test"},
                                one_secret({.secret = "open sesamet", .purpose = "est"}));
  EXPECT_FALSE(outcome.client);
}

struct Refusal {
  Verdict verdict;
  ErrorKind kind;
  const char* words;
};

class HandshakeRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(HandshakeRefusal, IsExplainedToTheClient) {
  const Refusal& refusal = GetParam();
  const Outcome outcome =
      shake(kShared, one_secret(kShared), [&](const Claims&) { return refusal.verdict; });
  EXPECT_FALSE(outcome.server);
  ASSERT_FALSE(outcome.client);
  EXPECT_EQ(outcome.client.error().kind, refusal.kind);
  EXPECT_THAT(outcome.client.error().message, HasSubstr(refusal.words));
}

INSTANTIATE_TEST_SUITE_P(
    All, HandshakeRefusal,
    testing::Values(Refusal{Verdict::duplicate, ErrorKind::invalid_argument, "already joined"},
                    Refusal{Verdict::impossible, ErrorKind::mismatch, "from rank 3 to rank 1"},
                    Refusal{Verdict::later, ErrorKind::disconnected, "earlier rendezvous"}));

TEST(Handshake, WorldSizesThatDifferAreNamedOnBothSides) {
  const Outcome outcome = shake(
      kShared, one_secret(kShared), [](const Claims& claims) { return check_rank(claims, 8); }, 8);
  ASSERT_FALSE(outcome.client);
  EXPECT_THAT(outcome.client.error().message,
              AllOf(HasSubstr("world size of 5"), HasSubstr("with 8")));
  ASSERT_FALSE(outcome.server);
  EXPECT_THAT(outcome.server.error().message,
              AllOf(HasSubstr("of 5"), HasSubstr("world size here is 8")));
}

TEST(Handshake, RanksOfAJobAreWithinItsWorldSize) {
  EXPECT_EQ(check_rank({.from = 4, .world_size = 5}, 5), Verdict::accepted);
  EXPECT_EQ(check_rank({.from = 4, .world_size = 6}, 5), Verdict::other_world_size);
  EXPECT_EQ(check_rank({.from = 4, .world_size = kNoWorld}, 5), Verdict::other_world_size);
  for (const Rank rank : {-1, 5, 1 << 30}) {
    EXPECT_EQ(check_rank({.from = rank, .world_size = 5}, 5), Verdict::impossible) << rank;
  }
}

TEST(Handshake, UnprovedClaimsAreNeverJudged) {
  bool judged = false;
  shake({.secret = "wrong", .purpose = "test"}, one_secret(kShared), [&](const Claims&) {
    judged = true;
    return Verdict::accepted;
  });
  EXPECT_FALSE(judged);
}

TEST(Handshake, WithItselfIsRecognized) {
  net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const net::SocketAddress any = test::any_loopback_port();
  ASSERT_EQ(::bind(socket.descriptor(), any.data(), any.size()), 0);
  const net::SocketAddress own = net::local_address(socket);
  ASSERT_EQ(::connect(socket.descriptor(), own.data(), own.size()), 0);
  ClientHandshake client(std::move(socket), own.to_string(), kShared, kClaims);
  const Status status = client.advance();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::disconnected);
  EXPECT_EQ(status.error().message, "no process listens at " + own.to_string());
}

TEST(ConnectAndGreet, SilentServerTimesOut) {
  const auto listener = net::listen_on(test::any_loopback_port());
  const auto socket =
      connect_authenticated(test::kNetwork, net::local_address(*listener), kShared, kClaims,
                            net::Deadline::after(test::kClock, std::chrono::milliseconds(50)));
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().kind, ErrorKind::timeout);
  EXPECT_THAT(socket.error().message, HasSubstr("does not answer as gradwire does"));
}

TEST(ConnectAndGreet, NobodyThereIsDisconnected) {
  const net::SocketAddress gone = net::local_address(*net::listen_on(test::any_loopback_port()));
  const auto socket =
      connect_authenticated(test::kNetwork, gone, kShared, kClaims, test::soon_enough());
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(socket.error().message, HasSubstr("cannot connect to " + gone.to_string()));
}

}  // namespace
}  // namespace gradwire::bootstrap

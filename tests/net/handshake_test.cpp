#include "gradwire/net/handshake.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/net/loopback.h"

namespace gradwire {
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

/// Moves one side on, keeping its first error. False once there is nothing more to do.
bool move_on(Handshake& side, Status& status) {
  if (!status || side.done()) return false;
  wait_for(side.socket(), side.wanted_events(), Deadline::after(std::chrono::milliseconds(20)));
  status = side.advance();
  return true;
}

struct Outcome {
  Status client;
  Status server;
  bool client_done = false;
  bool server_done = false;
  Claims claims;
  SessionKey client_key = {};
  SessionKey server_key = {};
};

/// Both sides in turns until each is done or has failed.
Outcome shake(const SharedSecret& at_client, const SharedSecret& at_server,
              const ServerHandshake::Admit& admit = accept_all, int world_size = 5) {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", at_client, kClaims);
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
  const Outcome outcome = shake(kShared, kShared);
  ASSERT_TRUE(outcome.client) << outcome.client.error().message;
  ASSERT_TRUE(outcome.server) << outcome.server.error().message;
  EXPECT_TRUE(outcome.client_done);
  EXPECT_TRUE(outcome.server_done);
  EXPECT_EQ(outcome.claims.from, 3);
  EXPECT_EQ(outcome.claims.to, 1);
  EXPECT_EQ(outcome.claims.world_size, 5);
  EXPECT_EQ(outcome.claims.rail, 2);
  EXPECT_EQ(outcome.client_key, outcome.server_key);
  EXPECT_NE(outcome.client_key, SessionKey{});
  EXPECT_NE(outcome.client_key, shake(kShared, kShared).client_key) << "of another connection";
}

TEST(Handshake, ThatOneEndEncryptsAndTheOtherDoesNotIsSaidAtBoth) {
  const Outcome outcome = shake(kShared, kShared, [](const Claims& claims) {
    return claims.encrypts ? Verdict::accepted : Verdict::other_encryption;
  });
  for (const Status* side : {&outcome.client, &outcome.server}) {
    ASSERT_FALSE(*side);
    EXPECT_EQ(side->error().kind, ErrorKind::mismatch);
    EXPECT_THAT(side->error().message, AllOf(HasSubstr("rank 3"), HasSubstr("does not encrypt"),
                                             HasSubstr("the same GRADWIRE_ENCRYPTION")));
  }
}

TEST(Handshake, TakesNoByteThatComesAfterIt) {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", kShared, kClaims);
  ServerHandshake server(std::move(pair.second), "the client", kShared, 5, accept_all);
  Status status;
  while (!server.done()) {
    ASSERT_TRUE(move_on(client, status));
    ASSERT_TRUE(move_on(server, status));
  }
  // The server is done one step before the client, and may talk at once.
  ASSERT_EQ(::send(server.socket().descriptor(), "frame", 5, MSG_NOSIGNAL), 5);
  while (move_on(client, status)) continue;
  ASSERT_TRUE(client.done());
  char buffer[10];
  ASSERT_TRUE(wait_for(client.socket(), POLLIN, test::soon_enough()));
  EXPECT_EQ(::recv(client.socket().descriptor(), buffer, sizeof buffer, MSG_DONTWAIT), 5);
}

TEST(Handshake, WrongSecretIsRefusedOnBothSides) {
  const Outcome outcome = shake({.secret = "open barley", .purpose = "test"}, kShared);
  for (const Status* side : {&outcome.client, &outcome.server}) {
    ASSERT_FALSE(*side);
    EXPECT_EQ(side->error().kind, ErrorKind::refused);
    EXPECT_THAT(side->error().message,
                HasSubstr("wrong secret: give every rank the same GRADWIRE_SECRET"));
  }
}

TEST(Handshake, AnotherPurposeIsRefused) {
  const Outcome outcome = shake({.secret = "open sesame", .purpose = "tes"}, kShared);
  EXPECT_FALSE(outcome.client);
  EXPECT_FALSE(outcome.server);
}

TEST(Handshake, SecretAndPurposeDoNotRunTogether) {
  const Outcome outcome = shake({.secret = "open sesame", .purpose = "test"},
                                {.secret = "open sesamet", .purpose = "est"});
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
  const Outcome outcome = shake(kShared, kShared, [&](const Claims&) { return refusal.verdict; });
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
  const Outcome outcome = shake(kShared, kShared, accept_all, 8);
  ASSERT_FALSE(outcome.client);
  EXPECT_THAT(outcome.client.error().message,
              AllOf(HasSubstr("world size of 5"), HasSubstr("with 8")));
  ASSERT_FALSE(outcome.server);
  EXPECT_THAT(outcome.server.error().message, AllOf(HasSubstr("of 5"), HasSubstr("world of 8")));
}

TEST(Handshake, UnprovedClaimsAreNeverJudged) {
  bool judged = false;
  shake({.secret = "wrong", .purpose = "test"}, kShared, [&](const Claims&) {
    judged = true;
    return Verdict::accepted;
  });
  EXPECT_FALSE(judged);
}

/// A server's handshake whose client is whatever the test sends.
struct AgainstStranger {
  Socket stranger;
  std::unique_ptr<ServerHandshake> server;

  AgainstStranger() {
    SocketPair pair = connected_pair();
    stranger = std::move(pair.first);
    server = std::make_unique<ServerHandshake>(std::move(pair.second), "10.0.0.9:1234", kShared, 5,
                                               accept_all);
  }

  Status after(std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    EXPECT_EQ(::send(stranger.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), size);
    EXPECT_TRUE(wait_for(server->socket(), POLLIN, test::soon_enough()));
    return server->advance();
  }

  /// What the server has answered, for which this waits if there must be something.
  std::string received(bool something = true) {
    EXPECT_TRUE(!something || wait_for(stranger, POLLIN, test::soon_enough()));
    std::string bytes(4096, '\0');
    const ssize_t count = ::recv(stranger.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }
};

TEST(Handshake, AnotherProtocolIsRefusedAtItsFirstBytesAndQuoted) {
  AgainstStranger case_of;
  const Status status = case_of.after("GET / HTTP/1.1\r\nHost: x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(status.error().message, HasSubstr("10.0.0.9:1234 does not speak gradwire's protocol: "
                                                "it sent \"GET / HTTP/1.1\\x0d\\x0aHost: x"));
  EXPECT_EQ(case_of.received(/*something=*/false), "");
}

TEST(Handshake, OneByteOfGarbageSuffices) {
  AgainstStranger case_of;
  EXPECT_FALSE(case_of.after("X"));
}

TEST(Handshake, NothingIsAnsweredToHalfAHello) {
  AgainstStranger case_of;
  EXPECT_TRUE(case_of.after("GRADWIRE\x01"));
  EXPECT_EQ(case_of.received(/*something=*/false), "");
  EXPECT_FALSE(case_of.server->done());
}

TEST(Handshake, CloseInTheMiddleIsNamed) {
  AgainstStranger case_of;
  EXPECT_TRUE(case_of.after("GRADWIRE\x01"));
  case_of.stranger.close();
  ASSERT_TRUE(wait_for(case_of.server->socket(), POLLIN, test::soon_enough()));
  const Status status = case_of.server->advance();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(status.error().message, HasSubstr("9 bytes of message 1"));
}

TEST(Handshake, RandomBytesAfterTheMagicNeverGetIn) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::string bytes = "GRADWIRE";
    bytes += std::string("\x02\0\0\0", 4);
    for (std::uint64_t i = random.below(120); i > 0; --i) {
      bytes += static_cast<char>(random.next());
    }
    AgainstStranger case_of;
    (void)case_of.after(bytes);
    ASSERT_FALSE(case_of.server->done()) << "seed " << seed;
  }
}

TEST(Handshake, BothVersionsAreNamedOnBothSides) {
  // A client of version 7: a hello of ours with another number.
  SocketPair recorded = connected_pair();
  ClientHandshake ours(std::move(recorded.first), "the server", kShared, kClaims);
  ASSERT_TRUE(ours.advance());
  std::string hello(64, '\0');
  ASSERT_TRUE(wait_for(recorded.second, POLLIN, test::soon_enough()));
  ASSERT_EQ(::recv(recorded.second.descriptor(), hello.data(), hello.size(), 0), 64);
  hello[8] = 7;
  AgainstStranger case_of;
  const Status at_server = case_of.after(hello);
  ASSERT_FALSE(at_server);
  EXPECT_EQ(at_server.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(
      at_server.error().message,
      AllOf(HasSubstr("version 7"), HasSubstr(fmt::format("version {}", kProtocolVersion))));

  // And what it hears is enough to say the same; with another number, it is a server of version 9.
  std::string answer = case_of.received();
  ASSERT_EQ(answer.size(), 80u);
  answer[8] = 9;
  ASSERT_EQ(::send(recorded.second.descriptor(), answer.data(), answer.size(), 0), 80);
  ASSERT_TRUE(wait_for(ours.socket(), POLLIN, test::soon_enough()));
  const Status at_client = ours.advance();
  ASSERT_FALSE(at_client);
  EXPECT_EQ(at_client.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(
      at_client.error().message,
      AllOf(HasSubstr("version 9"), HasSubstr(fmt::format("version {}", kProtocolVersion))));
}

/// All that a genuine client sends.
std::string recorded_client() {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", kShared, kClaims);
  EXPECT_TRUE(client.advance());
  std::string sent(64, '\0');
  EXPECT_TRUE(wait_for(pair.second, POLLIN, test::soon_enough()));
  EXPECT_EQ(::recv(pair.second.descriptor(), sent.data(), 64, 0), 64);
  // Passed on to a genuine server, as a man in the middle would, to get the genuine proof.
  AgainstStranger relay;
  EXPECT_TRUE(relay.after(sent));
  const std::string answer = relay.received();
  EXPECT_EQ(::send(pair.second.descriptor(), answer.data(), answer.size(), 0), 80);
  EXPECT_TRUE(wait_for(client.socket(), POLLIN, test::soon_enough()));
  EXPECT_TRUE(client.advance());
  std::string proof(32, '\0');
  EXPECT_TRUE(wait_for(pair.second, POLLIN, test::soon_enough()));
  EXPECT_EQ(::recv(pair.second.descriptor(), proof.data(), 32, 0), 32);
  EXPECT_TRUE(relay.after(proof));
  EXPECT_TRUE(relay.server->done());
  return sent + proof;
}

TEST(Handshake, ReplayedBytesAreRefused) {
  AgainstStranger case_of;
  const Status status = case_of.after(recorded_client());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::refused);
}

TEST(Handshake, TheServersOwnProofReflectedIsRefused) {
  const std::string hello = recorded_client().substr(0, 64);
  AgainstStranger case_of;
  ASSERT_TRUE(case_of.after(hello));
  const std::string proof = case_of.received().substr(48);
  ASSERT_EQ(proof.size(), 32u);
  EXPECT_FALSE(case_of.after(proof));
}

TEST(Handshake, WithItselfIsRecognised) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = test::any_loopback_port();
  ASSERT_EQ(::bind(socket.descriptor(), any.data(), any.size()), 0);
  const SocketAddress own = local_address(socket);
  ASSERT_EQ(::connect(socket.descriptor(), own.data(), own.size()), 0);
  ClientHandshake client(std::move(socket), own.to_string(), kShared, kClaims);
  const Status status = client.advance();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::disconnected);
  EXPECT_EQ(status.error().message, "nobody listens at " + own.to_string());
}

TEST(ConnectAndGreet, SilentServerTimesOut) {
  const auto listener = listen_on(test::any_loopback_port());
  const auto socket = connect_and_greet(local_address(*listener), kShared, kClaims,
                                        Deadline::after(std::chrono::milliseconds(50)));
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().kind, ErrorKind::timeout);
  EXPECT_THAT(socket.error().message, HasSubstr("does not answer as gradwire does"));
}

TEST(ConnectAndGreet, NobodyThereIsDisconnected) {
  const SocketAddress gone = local_address(*listen_on(test::any_loopback_port()));
  const auto socket = connect_and_greet(gone, kShared, kClaims, test::soon_enough());
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(socket.error().message, HasSubstr("cannot connect to " + gone.to_string()));
}

}  // namespace
}  // namespace gradwire

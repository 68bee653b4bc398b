#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/bootstrap/handshake/handshake.h"
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

/// A server's handshake with a client whose bytes the test chooses.
struct AgainstUnauthenticatedPeer {
  net::Socket peer;
  std::unique_ptr<ServerHandshake> server;

  AgainstUnauthenticatedPeer() {
    SocketPair pair = connected_pair();
    peer = std::move(pair.first);
    server = std::make_unique<ServerHandshake>(std::move(pair.second), "10.0.0.9:1234",
                                               one_secret(kShared), 5, accept_all);
  }

  Status after(std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    EXPECT_EQ(::send(peer.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), size);
    EXPECT_TRUE(net::wait_for(server->socket(), POLLIN, test::soon_enough()));
    return server->advance();
  }

  /// The server's answer; waits for it if `something`.
  std::string received(bool something = true) {
    EXPECT_TRUE(!something || net::wait_for(peer, POLLIN, test::soon_enough()));
    std::string bytes(4096, '\0');
    const ssize_t count = ::recv(peer.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }
};

TEST(HandshakeUnauthenticated, AnotherProtocolIsRefusedAtItsFirstBytesAndQuoted) {
  AgainstUnauthenticatedPeer case_of;
  const Status status = case_of.after("GET / HTTP/1.1\r\nHost: x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(status.error().message, HasSubstr("10.0.0.9:1234 does not speak gradwire's protocol: "
                                                "it sent \"GET / HTTP/1.1\\x0d\\x0aHost: x"));
  EXPECT_EQ(case_of.received(/*something=*/false), "");
}

TEST(HandshakeUnauthenticated, OneByteOfGarbageSuffices) {
  AgainstUnauthenticatedPeer case_of;
  EXPECT_FALSE(case_of.after("X"));
}

TEST(HandshakeUnauthenticated, NothingIsAnsweredToHalfAHello) {
  AgainstUnauthenticatedPeer case_of;
  EXPECT_TRUE(case_of.after("GRADWIRE\x01"));
  EXPECT_EQ(case_of.received(/*something=*/false), "");
  EXPECT_FALSE(case_of.server->done());
}

TEST(HandshakeUnauthenticated, CloseInTheMiddleIsNamed) {
  AgainstUnauthenticatedPeer case_of;
  EXPECT_TRUE(case_of.after("GRADWIRE\x01"));
  case_of.peer.close();
  ASSERT_TRUE(net::wait_for(case_of.server->socket(), POLLIN, test::soon_enough()));
  const Status status = case_of.server->advance();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::disconnected);
  EXPECT_THAT(status.error().message, HasSubstr("9 bytes of message 1"));
}

TEST(HandshakeUnauthenticated, RandomBytesAfterTheMagicNeverGetIn) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::string bytes = "GRADWIRE";
    bytes += std::string("\x04\0\0\0", 4);
    for (std::uint64_t i = random.below(120); i > 0; --i) {
      bytes += static_cast<char>(random.next());
    }
    AgainstUnauthenticatedPeer case_of;
    (void)case_of.after(bytes);
    ASSERT_FALSE(case_of.server->done()) << "seed " << seed;
  }
}

TEST(HandshakeUnauthenticated, BothVersionsAreNamedOnBothSides) {
  // A client of version 7: our hello with another version number.
  SocketPair recorded = connected_pair();
  ClientHandshake ours(std::move(recorded.first), "the server", kShared, kClaims);
  ASSERT_TRUE(ours.advance());
  std::string hello(64, '\0');
  ASSERT_TRUE(net::wait_for(recorded.second, POLLIN, test::soon_enough()));
  ASSERT_EQ(::recv(recorded.second.descriptor(), hello.data(), hello.size(), 0), 64);
  hello[8] = 7;
  AgainstUnauthenticatedPeer case_of;
  const Status at_server = case_of.after(hello);
  ASSERT_FALSE(at_server);
  EXPECT_EQ(at_server.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(
      at_server.error().message,
      AllOf(HasSubstr("version 7"), HasSubstr(fmt::format("version {}", kProtocolVersion))));

  // The answer tells it the reason. With another number it is the answer of a version 9 server.
  std::string answer = case_of.received();
  ASSERT_EQ(answer.size(), 80u) << "what clients of version 3 and older wait for";
  answer[8] = 9;
  ASSERT_EQ(::send(recorded.second.descriptor(), answer.data(), kAnswerSize, 0), 48);
  ASSERT_TRUE(net::wait_for(ours.socket(), POLLIN, test::soon_enough()));
  const Status at_client = ours.advance();
  ASSERT_FALSE(at_client);
  EXPECT_EQ(at_client.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(
      at_client.error().message,
      AllOf(HasSubstr("version 9"), HasSubstr(fmt::format("version {}", kProtocolVersion))));
}

/// All bytes that an authenticated client sends.
std::string recorded_client() {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", kShared, kClaims);
  EXPECT_TRUE(client.advance());
  std::string sent(64, '\0');
  EXPECT_TRUE(net::wait_for(pair.second, POLLIN, test::soon_enough()));
  EXPECT_EQ(::recv(pair.second.descriptor(), sent.data(), 64, 0), 64);
  // Relayed to a real server, as by a man in the middle, to get a valid proof.
  AgainstUnauthenticatedPeer relay;
  EXPECT_TRUE(relay.after(sent));
  const std::string answer = relay.received();
  EXPECT_EQ(::send(pair.second.descriptor(), answer.data(), answer.size(), 0), 48);
  EXPECT_TRUE(net::wait_for(client.socket(), POLLIN, test::soon_enough()));
  EXPECT_TRUE(client.advance());
  std::string proof(32, '\0');
  EXPECT_TRUE(net::wait_for(pair.second, POLLIN, test::soon_enough()));
  EXPECT_EQ(::recv(pair.second.descriptor(), proof.data(), 32, 0), 32);
  EXPECT_TRUE(relay.after(proof));
  EXPECT_TRUE(relay.server->done());
  return sent + proof;
}

TEST(HandshakeUnauthenticated, ReplayedBytesAreRefused) {
  AgainstUnauthenticatedPeer case_of;
  const Status status = case_of.after(recorded_client());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::refused);
}

TEST(HandshakeUnauthenticated, NothingSentToUnauthenticatedPeersDependsOnTheSecret) {
  const std::string hello = recorded_client().substr(0, 64);
  AgainstUnauthenticatedPeer case_of;
  ASSERT_TRUE(case_of.after(hello));
  // A wrong guess; a right one could be confirmed with the same hello and answer.
  const std::string answer = case_of.received();
  EXPECT_EQ(answer.size(), 48u);
  EXPECT_EQ(answer.substr(0, 16), std::string("GRADWIRE\x05\0\0\0\0\0\0\0", 16))
      << "then 32 random";
  EXPECT_FALSE(case_of.after(std::string(32, 'x')));
  EXPECT_EQ(case_of.received(), std::string("\x01", 1) + std::string(39, '\0')) << "wrong secret";
}

/// The client's result if `change` modifies the verdict in transit; bytes are as on the wire.
Status after_changed_verdict(Verdict said, const std::function<void(std::string&)>& change) {
  SocketPair outer = connected_pair();
  SocketPair inner = connected_pair();
  ClientHandshake client(std::move(outer.first), "the server", kShared, kClaims);
  ServerHandshake server(std::move(inner.second), "the client", one_secret(kShared), 5,
                         [said](const Claims&) { return said; });
  const auto pass_on = [](net::Socket& from, net::Socket& to, const net::Socket& receiver,
                          std::size_t size, const auto& changed) {
    std::string bytes(size, '\0');
    EXPECT_TRUE(net::wait_for(from, POLLIN, test::soon_enough()));
    EXPECT_EQ(::recv(from.descriptor(), bytes.data(), size, MSG_WAITALL), ssize_t(size));
    changed(bytes);
    EXPECT_EQ(::send(to.descriptor(), bytes.data(), size, MSG_NOSIGNAL), ssize_t(size));
    EXPECT_TRUE(net::wait_for(receiver, POLLIN, test::soon_enough()));
  };
  const auto nothing = [](std::string&) {};
  EXPECT_TRUE(client.advance());
  pass_on(outer.second, inner.first, server.socket(), kHelloSize, nothing);
  EXPECT_TRUE(server.advance());
  pass_on(inner.first, outer.second, client.socket(), kAnswerSize, nothing);
  EXPECT_TRUE(client.advance());
  pass_on(outer.second, inner.first, server.socket(), kProofSize, nothing);
  (void)server.advance();
  pass_on(inner.first, outer.second, client.socket(), kVerdictSize, change);
  const Status status = client.advance();
  EXPECT_EQ(client.done(), status.has_value());
  return status;
}

TEST(HandshakeUnauthenticated, AnInjectedVerdictIsRefused) {
  ASSERT_TRUE(after_changed_verdict(Verdict::accepted, [](std::string&) {}));
  for (std::uint32_t said = 0; said <= 6; ++said) {
    for (std::uint32_t forged = 0; forged <= 7; ++forged) {
      if (said == forged) continue;
      const Status status = after_changed_verdict(
          Verdict(said), [&](std::string& bytes) { bytes[0] = static_cast<char>(forged); });
      ASSERT_FALSE(status) << said << " " << forged;
      EXPECT_EQ(status.error().kind, ErrorKind::refused) << said << " " << forged;
      EXPECT_THAT(status.error().message, HasSubstr("wrong secret"));
    }
  }
}

TEST(HandshakeUnauthenticated, ABitOfAVerdictThatChangesIsNoticed) {
  for (std::size_t bit = 0; bit < 8 * kVerdictSize; ++bit) {
    EXPECT_FALSE(after_changed_verdict(Verdict::accepted, [bit](std::string& bytes) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    })) << bit;
  }
}

TEST(HandshakeUnauthenticated, TheClientsOwnProofReflectedIsNoVerdict) {
  SocketPair pair = connected_pair();
  ClientHandshake client(std::move(pair.first), "the server", kShared, kClaims);
  ASSERT_TRUE(client.advance());
  const std::string answer = std::string("GRADWIRE\x05\0\0\0\0\0\0\0", 16) + std::string(32, 'n');
  ASSERT_EQ(::send(pair.second.descriptor(), answer.data(), answer.size(), 0), 48);
  ASSERT_TRUE(net::wait_for(client.socket(), POLLIN, test::soon_enough()));
  ASSERT_TRUE(client.advance());
  std::string sent(kHelloSize + kProofSize, '\0');
  ASSERT_TRUE(net::wait_for(pair.second, POLLIN, test::soon_enough()));
  ASSERT_EQ(::recv(pair.second.descriptor(), sent.data(), sent.size(), MSG_WAITALL), 96);
  const std::string verdict = std::string(8, '\0') + sent.substr(kHelloSize);
  ASSERT_EQ(::send(pair.second.descriptor(), verdict.data(), verdict.size(), 0), 40);
  ASSERT_TRUE(net::wait_for(client.socket(), POLLIN, test::soon_enough()));
  const Status status = client.advance();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::refused);
}

}  // namespace
}  // namespace gradwire::bootstrap

#include "gradwire/bootstrap/store/message_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/loopback.h"

namespace gradwire::bootstrap {
namespace {

using test::connected_pair;
using test::SocketPair;
using testing::HasSubstr;

constexpr std::size_t kMaxBytes = 1000;
constexpr std::size_t kOverhead = 20;

net::SessionKey key_of(unsigned char byte) {
  net::SessionKey key;
  key.fill(static_cast<std::byte>(byte));
  return key;
}

/// Two ends; the test forwards the bytes between them.
struct Wire {
  SocketPair outer = connected_pair();
  SocketPair inner = connected_pair();
  MessageStream client{std::move(outer.first), key_of(7), MessageStream::End::client, kMaxBytes};
  MessageStream server{std::move(inner.second), key_of(7), MessageStream::End::server, kMaxBytes};

  /// Bytes sent by the client.
  std::string sent(std::size_t size) {
    std::string bytes(size, '\0');
    EXPECT_TRUE(net::wait_for(outer.second, POLLIN, test::soon_enough()));
    EXPECT_EQ(::recv(outer.second.descriptor(), bytes.data(), size, 0), ssize_t(size));
    return bytes;
  }

  /// The server's result for these bytes.
  Result<bool> received(const std::string& bytes, std::string& message) {
    const ssize_t count =
        ::send(inner.first.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_EQ(count, ssize_t(bytes.size()));
    EXPECT_TRUE(net::wait_for(server.socket(), POLLIN, test::soon_enough()));
    return server.receive(message);
  }
};

TEST(MessageStream, CarriesMessagesOfAnySize) {
  SocketPair pair = connected_pair();
  MessageStream client(std::move(pair.first), key_of(1), MessageStream::End::client, 1 << 22);
  MessageStream server(std::move(pair.second), key_of(1), MessageStream::End::server, 1 << 22);
  for (const std::size_t size : {0, 1, 1000, 1 << 22}) {
    for (auto* ends : {&client, &server}) {
      MessageStream& from = *ends;
      MessageStream& to = &from == &client ? server : client;
      const std::string message(size, 'm');
      ASSERT_TRUE(from.send(message));
      std::string got;
      for (const net::Deadline deadline = test::soon_enough(); !deadline.passed();) {
        ASSERT_TRUE(from.flush());
        const auto there = to.receive(got);
        ASSERT_TRUE(there) << there.error().message;
        if (*there) break;
      }
      EXPECT_EQ(got, message);
      EXPECT_TRUE(from.flushed());
    }
  }
}

TEST(MessageStream, EveryBitThatChangesIsFound) {
  for (std::size_t bit = 0; bit < 8 * (3 + kOverhead); ++bit) {
    Wire wire;
    ASSERT_TRUE(wire.client.send("abc"));
    std::string bytes = wire.sent(3 + kOverhead);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    std::string message;
    const auto there = wire.received(bytes, message);
    EXPECT_FALSE(there && *there) << bit;  // A corrupted larger size waits for bytes that never
                                           // arrive.
  }
}

TEST(MessageStream, RepeatedAndOmittedMessagesAreDetected) {
  Wire wire;
  ASSERT_TRUE(wire.client.send("one"));
  const std::string one = wire.sent(3 + kOverhead);
  ASSERT_TRUE(wire.client.send("two"));
  const std::string two = wire.sent(3 + kOverhead);
  std::string message;
  ASSERT_EQ(wire.received(one, message), true);
  const auto again = wire.received(one, message);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::corrupted);
  EXPECT_THAT(again.error().message, HasSubstr("corrupted in transit"));
  Wire other;
  EXPECT_FALSE(other.received(two, message));
}

TEST(MessageStream, OnesOwnMessageReflectedIsRefused) {
  Wire wire;
  ASSERT_TRUE(wire.client.send("abc"));
  const std::string bytes = wire.sent(3 + kOverhead);
  ASSERT_GT(::send(wire.outer.second.descriptor(), bytes.data(), bytes.size(), 0), 0);
  ASSERT_TRUE(net::wait_for(wire.client.socket(), POLLIN, test::soon_enough()));
  std::string message;
  EXPECT_FALSE(wire.client.receive(message));
}

TEST(MessageStream, TooMuchIsRefusedAtItsFirstBytes) {
  Wire wire;
  std::string message;
  const auto there = wire.received(std::string("\xe9\x03\0\0", 4), message);
  ASSERT_FALSE(there);
  EXPECT_THAT(there.error().message, HasSubstr("1001 bytes"));
}

TEST(MessageStream, DisconnectionOfThePeerIsReported) {
  Wire wire;
  wire.inner.first.close();
  ASSERT_TRUE(net::wait_for(wire.server.socket(), POLLIN, test::soon_enough()));
  std::string message;
  const auto there = wire.server.receive(message);
  ASSERT_FALSE(there);
  EXPECT_EQ(there.error().kind, ErrorKind::disconnected);
}

}  // namespace
}  // namespace gradwire::bootstrap

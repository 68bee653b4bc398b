#include "gradwire/net/local_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "gradwire/base/random.h"
#include "tests/support/loopback.h"

namespace gradwire::net {
namespace {

struct LocalPair {
  Socket first;
  Socket second;
};

LocalPair local_pair(const std::string& name) {
  const Socket listener = std::move(**listen_locally(name));
  Socket first = std::move(**connect_locally(name));
  return {std::move(first), std::move(**accept_locally(listener))};
}

std::string new_name() {
  return "gradwire-test-" + random_hex(8);
}

TEST(LocalSocket, CarriesMessagesWholeAndInOrder) {
  const LocalPair pair = local_pair(new_name());
  EXPECT_FALSE(receive_local(pair.second));
  ASSERT_TRUE(send_local(pair.first, "one"));
  ASSERT_TRUE(send_local(pair.first, std::string(kMaxLocalMessage, 'x')));
  EXPECT_EQ(receive_local(pair.second)->text, "one");
  EXPECT_EQ(receive_local(pair.second)->text.size(), kMaxLocalMessage);
  EXPECT_FALSE(receive_local(pair.second));
}

TEST(LocalSocket, HandsADescriptorOver) {
  const LocalPair pair = local_pair(new_name());
  test::SocketPair connection = test::connected_pair();
  ASSERT_TRUE(send_local(pair.first, "c", connection.first));
  connection.first.close();
  const auto message = receive_local(pair.second);
  ASSERT_TRUE(message && message->passed.valid());
  // The remaining one is the same connection.
  const auto hello = std::as_bytes(std::span("hello", 5));
  ASSERT_EQ(send_some(message->passed, hello).bytes, 5u);
  std::array<std::byte, 8> got;
  ASSERT_TRUE(wait_for(connection.second, POLLIN, test::soon_enough()));
  EXPECT_EQ(receive_some(connection.second, got).bytes, 5u);
}

TEST(LocalSocket, MessagesAreStillReadAfterTheEnd) {
  LocalPair pair = local_pair(new_name());
  ASSERT_TRUE(send_local(pair.first, "last words"));
  pair.first.close();
  EXPECT_EQ(receive_local(pair.second)->text, "last words");
  EXPECT_TRUE(receive_local(pair.second)->ended);
  EXPECT_FALSE(send_local(pair.second, "too late"));
}

TEST(LocalSocket, ANameHasOneOwnerAndGoesWithIt) {
  const std::string name = new_name();
  EXPECT_FALSE(connect_locally(name)->has_value());
  auto owner = listen_locally(name);
  ASSERT_TRUE(owner->has_value());
  EXPECT_FALSE(listen_locally(name)->has_value());
  EXPECT_TRUE(connect_locally(name)->has_value());
  (*owner)->close();
  EXPECT_FALSE(connect_locally(name)->has_value());
  EXPECT_TRUE(listen_locally(name)->has_value());
}

TEST(LocalSocket, AFullQueueRefusesMessagesUntilTheyAreRead) {
  const LocalPair pair = local_pair(new_name());
  const std::string large(kMaxLocalMessage, 'x');
  int sent = 0;
  while (sent < 100'000 && send_local(pair.first, large)) ++sent;
  EXPECT_GT(sent, 1);
  EXPECT_LT(sent, 100'000);
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(receive_local(pair.second));
  EXPECT_TRUE(send_local(pair.first, large));
}

}  // namespace
}  // namespace gradwire::net

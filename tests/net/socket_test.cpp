#include "gradwire/net/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int option_of(const Socket& socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(socket.descriptor(), level, option, &value, &size), 0);
  return value;
}

TEST(Socket, ClosesWhatItOwnsOnce) {
  Socket first = std::move(*listen_on(test::any_loopback_port()));
  const int descriptor = first.descriptor();
  Socket second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is what is tested.
  EXPECT_EQ(second.descriptor(), descriptor);
  second.close();
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
}

TEST(Socket, IsNonBlockingAndClosedOnExec) {
  const test::SocketPair pair = test::connected_pair();
  for (const Socket* socket : {&pair.first, &pair.second}) {
    EXPECT_NE(fcntl(socket->descriptor(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(fcntl(socket->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Socket, ListensOnTheGivenAddressOnly) {
  const auto listener = listen_on(test::any_loopback_port());
  const SocketAddress at = local_address(*listener);
  EXPECT_EQ(at.host(), "127.0.0.1");
  EXPECT_NE(at.port(), 0);
  const auto elsewhere = SocketAddress::of("127.0.0.2", at.port());
  const auto socket = connect_to(*elsewhere, test::soon_enough());
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().kind, ErrorKind::disconnected);
}

TEST(Socket, WillNotListenEverywhere) {
  for (const char* everywhere : {"0.0.0.0", "::"}) {
    const auto listener = listen_on(*SocketAddress::of(everywhere, 0));
    ASSERT_FALSE(listener);
    EXPECT_EQ(listener.error().kind, ErrorKind::invalid_argument);
  }
}

TEST(Socket, ATakenPortIsNamed) {
  const auto first = listen_on(test::any_loopback_port());
  const auto second = listen_on(local_address(*first));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr(local_address(*first).to_string()), HasSubstr("another port")));
}

TEST(Socket, AnAddressOfAnotherHostIsNamed) {
  const auto listener = listen_on(*SocketAddress::of("203.0.113.7", 0));
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message, HasSubstr("not an address of this host"));
}

TEST(Socket, ConnectsFromTheSourceGiven) {
  const auto listener = listen_on(test::any_loopback_port());
  const auto source = SocketAddress::of("127.0.0.3", 0);
  const auto socket = connect_to(local_address(*listener), test::soon_enough(), *source);
  ASSERT_TRUE(socket) << socket.error().message;
  const auto accepted = accept_one(*listener);
  ASSERT_TRUE(accepted && *accepted);
  EXPECT_EQ((*accepted)->from.host(), "127.0.0.3");
  EXPECT_EQ((*accepted)->from, local_address(*socket));
}

TEST(Socket, AcceptAnswersNothingWhenNobodyWaits) {
  const auto listener = listen_on(test::any_loopback_port());
  const auto accepted = accept_one(*listener);
  ASSERT_TRUE(accepted);
  EXPECT_FALSE(accepted->has_value());
}

TEST(Socket, ConnectionToItselfIsRecognized) {
  // A self-connection, which happens by chance when a client retries an unused port of its own
  // host.
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = test::any_loopback_port();
  ASSERT_EQ(::bind(socket.descriptor(), any.data(), any.size()), 0);
  const SocketAddress own = local_address(socket);
  ASSERT_EQ(::connect(socket.descriptor(), own.data(), own.size()), 0);
  EXPECT_TRUE(connected_to_itself(socket));
  EXPECT_FALSE(connected_to_itself(test::connected_pair().first));
}

TEST(Socket, KnowsWhetherTheOtherEndHasClosed) {
  test::SocketPair pair = test::connected_pair();
  EXPECT_FALSE(has_ended(pair.first));
  ASSERT_EQ(::send(pair.second.descriptor(), "x", 1, 0), 1);
  pair.second.close();
  char byte;
  ASSERT_TRUE(wait_for(pair.first, POLLIN, test::soon_enough()));
  EXPECT_FALSE(has_ended(pair.first));
  ASSERT_EQ(::recv(pair.first.descriptor(), &byte, 1, 0), 1);
  ASSERT_TRUE(wait_for(pair.first, POLLIN, test::soon_enough()));
  EXPECT_TRUE(has_ended(pair.first));
}

TEST(Socket, TuningSetsWhatTheKernelKnows) {
  const test::SocketPair pair = test::connected_pair();
  tune_stream(pair.first, std::chrono::milliseconds(1500));
  EXPECT_EQ(option_of(pair.first, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option_of(pair.second, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option_of(pair.first, IPPROTO_TCP, TCP_USER_TIMEOUT), 1500);
  EXPECT_EQ(option_of(pair.first, IPPROTO_TCP, TCP_NOTSENT_LOWAT), kUnsentLowWater);
}

TEST(Socket, WaitEndsAtTheDeadline) {
  const test::SocketPair pair = test::connected_pair();
  EXPECT_FALSE(
      wait_for(pair.first, POLLIN, Deadline::after(test::kClock, std::chrono::milliseconds(10))));
  EXPECT_TRUE(wait_for(pair.first, POLLOUT, test::soon_enough()));
}

}  // namespace
}  // namespace gradwire::net

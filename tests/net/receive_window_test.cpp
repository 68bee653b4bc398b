#include "gradwire/net/receive_window.h"

#include <vector>

#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/support/loopback.h"

namespace gradwire::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <class Value>
Value option(const Socket& socket, int level, int name) {
  Value value{};
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(socket.descriptor(), level, name, &value, &size), 0);
  return value;
}

int clamp(const Socket& socket) {
  return option<int>(socket, IPPROTO_TCP, TCP_WINDOW_CLAMP);
}

int buffer(const Socket& socket) {
  return option<int>(socket, SOL_SOCKET, SO_RCVBUF);
}

/// Sends enough for the window to grow, if unlimited, and reads it at once.
void exchange(const Socket& from, const Socket& to, std::size_t bytes) {
  std::vector<char> data(16 * 1024);
  for (std::size_t sent = 0; sent < bytes; sent += data.size()) {
    ASSERT_TRUE(wait_for(from, POLLOUT, test::soon_enough()));
    ::send(from.descriptor(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    while (::recv(to.descriptor(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
    }
  }
}

class ReceiveWindowTest : public testing::Test {
 protected:
  void set(double share, Time now) { window_.set(ends_.second.descriptor(), share, now); }

  /// The window as known to the sender.
  std::uint32_t window_of_sender() const {
    return option<tcp_info>(ends_.first, IPPROTO_TCP, TCP_INFO).tcpi_snd_wnd;
  }

  test::SocketPair ends_ = test::connected_pair();
  ReceiveWindow window_;
};

TEST_F(ReceiveWindowTest, IsAShareOfTheSwitchQueue) {
  set(0.25, Time{});
  EXPECT_EQ(window_.size(), 96 * 1024);
  EXPECT_EQ(clamp(ends_.second), 96 * 1024);
  set(0.5, Time{});
  EXPECT_EQ(clamp(ends_.second), 192 * 1024);
  set(0.001, Time{});
  EXPECT_EQ(window_.size(), 32 * 1024);
}

TEST_F(ReceiveWindowTest, LimitsTheSenderThoughTheKernelForgetsIt) {
  set(0.25, Time{});
  exchange(ends_.first, ends_.second, 4 << 20);  // In larger packets than any before.
  // Under load the second time, too, may have larger packets than any before.
  int second = 1;
  do {
    set(0.25, Time{seconds(second)});
    EXPECT_EQ(clamp(ends_.second), 96 * 1024);
    exchange(ends_.first, ends_.second, 4 << 20);
  } while (window_of_sender() > 96u * 1024 && ++second < 10);
  EXPECT_LE(window_of_sender(), 96u * 1024);
}

TEST_F(ReceiveWindowTest, NeedsABufferThatHoldsItAndNeverMakesItSmaller) {
  const int before = buffer(ends_.second);
  set(0.25, Time{});
  const int there = buffer(ends_.second);
  EXPECT_GE(there, before);
  EXPECT_GE(there, 384 * 1024);
  set(0.1, Time{});
  EXPECT_EQ(buffer(ends_.second), there);
  EXPECT_EQ(option<int>(ends_.second, SOL_SOCKET, SO_BUF_LOCK), 0) << "the kernel does not tune it";
}

TEST_F(ReceiveWindowTest, LeavesABufferThatTheKernelHasMadeLarger) {
  constexpr int kTuned = 300 * 1024;  // The kernel doubles it, or what net.core.rmem_max allows,
  const int socket = ends_.second.descriptor();
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kTuned, sizeof kTuned);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &kTuned, sizeof kTuned);  // unless root sets it.
  const int before = buffer(ends_.second);
  set(0.25, Time{});
  EXPECT_GE(buffer(ends_.second), before);
}

TEST_F(ReceiveWindowTest, HasNoLimitAfterTheSenderWasAlone) {
  set(1, Time{});
  const int free = clamp(ends_.second);
  set(0.25, Time{seconds(10)});
  set(1, Time{seconds(10) + milliseconds(10)});
  EXPECT_EQ(clamp(ends_.second), 192 * 1024) << "the others may have been done before it";
  set(1, Time{seconds(11)});
  EXPECT_EQ(clamp(ends_.second), 384 * 1024) << "others may soon send again";
  set(1, Time{seconds(13)});
  EXPECT_GE(clamp(ends_.second), free);
}

}  // namespace
}  // namespace gradwire::net

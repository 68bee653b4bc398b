#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "gradwire/net/tcp_transport.h"
#include "tests/support/host.h"
#include "tests/support/loopback.h"

namespace gradwire::net {
namespace {

constexpr StreamId kPeer{.peer = 1, .rail = 0};

TEST(GsoBurst, IsAMultipleOfTheSegmentSize) {
  test::SocketPair pair = test::connected_pair();
  int segment = 0;
  socklen_t size = sizeof segment;
  getsockopt(pair.first.descriptor(), IPPROTO_TCP, TCP_MAXSEG, &segment, &size);
  ASSERT_GT(segment, 0);
  std::vector<std::vector<Socket>> sockets(2);
  sockets[1].push_back(std::move(pair.first));
  const auto transport = TcpTransport::create(test::kClock, std::move(sockets), {{}, {"rank 1"}});
  ASSERT_TRUE(transport);
  const std::size_t burst = (*transport)->gso_burst_bytes(kPeer);
  EXPECT_EQ(burst % static_cast<std::size_t>(segment), 0);
  EXPECT_LE(burst, 64 * 1024);
  EXPECT_GT(burst + static_cast<std::size_t>(segment), 65536 - 1 - 320);
}

}  // namespace
}  // namespace gradwire::net

#pragma once

#include <utility>

#include <gtest/gtest.h>
#include <poll.h>

#include "gradwire/net/socket.h"
#include "tests/support/host.h"

namespace gradwire::test {

inline net::SocketAddress any_loopback_port() {
  return *net::SocketAddress::of("127.0.0.1", 0);
}

/// A deadline generous for any machine; reached only on a failure.
inline net::Deadline soon_enough() {
  return net::Deadline::after(kClock, std::chrono::seconds(20));
}

/// The two ends of a connection over the loopback.
struct SocketPair {
  net::Socket first;
  net::Socket second;
};

inline SocketPair connected_pair() {
  auto listener = net::listen_on(any_loopback_port());
  auto first = net::connect_to(net::local_address(*listener), soon_enough());
  EXPECT_TRUE(first) << first.error().message;
  EXPECT_TRUE(net::wait_for(*listener, POLLIN, soon_enough()));
  auto accepted = net::accept_one(*listener);
  return {std::move(*first), std::move((**accepted).socket)};
}

}  // namespace gradwire::test

#pragma once

#include <vector>

#include "tests/support/transport_pair.h"

/// Helpers of the shared-memory tests: the streams between ranks 0 and 1.
namespace gradwire::test {

constexpr net::StreamId to_peer_of(Rank rank) {
  return {.peer = 1 - rank, .rail = 0};
}

inline std::size_t write(net::PollingTransport& transport, Rank self, ConstBytes data) {
  return transport.write(to_peer_of(self), std::span(&data, 1)).value_or(0);
}

/// Sleeps until the stream has bytes. Polls only when needed: a lost wake-up results in an empty
/// answer after 20 seconds.
inline ConstBytes await_bytes(net::PollingTransport& transport, Rank self) {
  std::vector<net::ReadyEvent> events;
  for (const net::Deadline deadline = soon_enough(); !deadline.passed();) {
    const auto there = transport.peek(to_peer_of(self));
    if (!there || !there->empty()) return there.value_or(ConstBytes());
    transport.poll(deadline.left(), events);
  }
  return {};
}

}  // namespace gradwire::test

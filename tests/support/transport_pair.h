#pragma once

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/net/shm/open_transport.h"
#include "gradwire/net/sim/sim_network.h"
#include "gradwire/net/tcp_transport.h"
#include "tests/support/loopback.h"

namespace gradwire::test {

using Data = std::vector<std::byte>;

inline Data random_data(std::size_t size) {
  Random random(size);
  Data data(size);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
  return data;
}

/// Ranks 0 and 1 and the streams between them.
class TransportPair {
 public:
  virtual ~TransportPair() = default;
  virtual net::Transport& of(Rank rank) = 0;
  /// Waits for the next events of a rank; returns none after a generous timeout.
  virtual std::vector<net::ReadyEvent> wait(Rank rank) = 0;
};

/// Over real sockets or shared memory.
class PollingPair final : public TransportPair {
 public:
  PollingPair(std::unique_ptr<net::PollingTransport> first,
              std::unique_ptr<net::PollingTransport> second) {
    transports_.push_back(std::move(first));
    transports_.push_back(std::move(second));
  }
  net::PollingTransport& of(Rank rank) override {
    return *transports_[static_cast<std::size_t>(rank)];
  }
  std::vector<net::ReadyEvent> wait(Rank rank) override {
    std::vector<net::ReadyEvent> events;
    for (const net::Deadline deadline = soon_enough(); events.empty() && !deadline.passed();) {
      of(rank).poll(deadline.left(), events);
    }
    return events;
  }
  void destroy(Rank rank) { transports_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<net::PollingTransport>> transports_;
};

class SimulatedPair final : public TransportPair {
 public:
  SimulatedPair(const net::SimOptions& options, std::size_t rails)
      : network_({{.rails = std::vector<net::SimPort>(rails)},
                  {.rails = std::vector<net::SimPort>(rails)}},
                 {0, 1}, options) {}
  net::Transport& of(Rank rank) override { return network_.endpoint(rank); }
  std::vector<net::ReadyEvent> wait(Rank rank) override {
    const Time until = network_.now() + std::chrono::seconds(20);
    std::vector<net::ReadyEvent>& mine = waiting_[static_cast<std::size_t>(rank)];
    while (mine.empty()) {
      const auto event = network_.next(until);
      if (!event) break;
      waiting_[static_cast<std::size_t>(event->rank)].push_back(event->ready);
    }
    return std::exchange(mine, {});
  }

 private:
  net::SimNetwork network_;
  std::array<std::vector<net::ReadyEvent>, 2> waiting_;
};

/// The session key as a handshake over that rail would provide it to both ends.
inline net::SessionKey key_of_rail(std::size_t rail) {
  net::SessionKey key = {};
  key.fill(static_cast<std::byte>(rail + 1));
  return key;
}

inline net::Connections connections_of(Rank rank, std::vector<net::Socket> rails,
                                       bool encrypted = false) {
  net::Connections connections{.rank = rank};
  connections.sockets.resize(2);
  connections.names.resize(2);
  const auto peer = static_cast<std::size_t>(1 - rank);
  for (std::size_t i = 0; i < rails.size(); ++i) {
    connections.names[peer].push_back("rank " + std::to_string(1 - rank));
  }
  if (encrypted) connections.keys.resize(2);
  for (std::size_t i = 0; encrypted && i < rails.size(); ++i) {
    connections.keys[peer].push_back(key_of_rail(i));
  }
  connections.sockets[peer] = std::move(rails);
  return connections;
}

using Opened = std::array<Result<std::unique_ptr<net::PollingTransport>>, 2>;

/// Ranks 0 and 1 open their transports concurrently. `neighbors`: both claim to be on one machine.
inline Opened open_both(net::Connections first, net::Connections second, bool neighbors = false) {
  Opened opened;
  const auto open = [&](Rank rank, net::Connections connections) {
    const std::vector<Rank> claimed = neighbors ? std::vector<Rank>{1 - rank} : std::vector<Rank>{};
    opened[static_cast<std::size_t>(rank)] =
        net::open_transport(std::move(connections), claimed, soon_enough());
  };
  std::thread other([&] { open(1, std::move(second)); });
  open(0, std::move(first));
  other.join();
  return opened;
}

/// Two ranks connected by `rails` TCP connections, which share memory if both claim to be
/// neighbors.
inline std::unique_ptr<PollingPair> open_pair(std::size_t rails, bool neighbors,
                                              bool encrypted = false) {
  std::vector<net::Socket> first;
  std::vector<net::Socket> second;
  for (std::size_t i = 0; i < rails; ++i) {
    SocketPair pair = connected_pair();
    first.push_back(std::move(pair.first));
    second.push_back(std::move(pair.second));
  }
  Opened opened = open_both(connections_of(0, std::move(first), encrypted),
                            connections_of(1, std::move(second), encrypted), neighbors);
  for (const auto& each : opened) EXPECT_TRUE(each) << each.error().message;
  return std::make_unique<PollingPair>(std::move(*opened[0]), std::move(*opened[1]));
}

}  // namespace gradwire::test

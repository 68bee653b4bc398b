#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/comm/communicator.h"
#include "gradwire/net/socket.h"
#include "gradwire/topology/topology.h"

namespace gradwire::test {

inline LentSpan lend(std::vector<float>& values) {
  return {values.data(), values.size(), DataType::float32, nullptr};
}

/// Expects that no rank of a LocalJob failed.
inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// The transport of a LocalJob's bytes.
enum class Wire {
  shm,  ///< Shared memory within a host, TCP between hosts.
  tcp,  ///< TCP alone.
  tls,  ///< Encrypted TCP alone.
};

std::string name_of(Wire wire);

struct LocalNetwork {
  Wire wire = Wire::shm;
  /// Simulated hosts, numbered by their lowest rank: each has a loopback address for every rail.
  /// The job gets the rates of their rails as if measured; only schedules depend on them. Not set:
  /// all ranks are on this machine, over one rail.
  std::optional<topology::Topology> topology = {};
};

/// A port of 127.0.0.1 that stays reserved while this lives: the kernel assigns it to no other
/// socket, but a rank can listen on it.
class ReservedPort {
 public:
  ReservedPort();
  std::uint16_t number() const { return net::local_address(socket_).port(); }

 private:
  net::Socket socket_;  ///< Bound, and never listens.
};

/// The Job of every rank, by rank.
std::vector<bootstrap::Job> local_jobs(int ranks, const LocalNetwork& network, std::uint16_t port);

/// A job whose ranks are threads of this process, connected by real sockets on the loopback.
class LocalJob {
 public:
  explicit LocalJob(int ranks, const CommunicatorOptions& options = {},
                    const LocalNetwork& network = {});

  int ranks() const { return static_cast<int>(communicators_.size()); }
  Communicator& on(Rank rank) { return *communicators_[static_cast<std::size_t>(rank)]; }

  /// Closes one rank's communicator.
  void leave(Rank rank) { communicators_[static_cast<std::size_t>(rank)].reset(); }

  /// Runs `body` on every rank at once and returns when all are back. What a rank throws is
  /// returned as text, empty for none.
  std::vector<std::string> run(const std::function<void(Rank, Communicator&)>& body);

 private:
  std::vector<std::shared_ptr<Communicator>> communicators_;
};

}  // namespace gradwire::test

#pragma once

#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "gradwire/base/random.h"
#include "gradwire/bootstrap/connect.h"
#include "gradwire/net/socket.h"
#include "tests/support/host.h"

namespace gradwire::test {

/// Returns a port of the loopback that was free a moment ago. It is below the kernel's range of
/// ephemeral ports (32768 and up), so that it is still free when a rank listens on it.
inline std::uint16_t free_port() {
  static Random random(static_cast<std::uint64_t>(::getpid()));
  for (;;) {
    const auto port = static_cast<std::uint16_t>(random.between(15'000, 32'000));
    if (net::listen_on(*net::SocketAddress::of("127.0.0.1", port))) return port;
  }
}

inline bootstrap::Job job_of(Rank rank, int world_size, std::uint16_t port) {
  bootstrap::Job job;
  job.rank = rank;
  job.world_size = world_size;
  job.local_world_size = world_size;
  job.master_port = port;
  job.secret = "the secret of this test";
  return job;
}

inline bootstrap::StartOptions within(Duration timeout) {
  bootstrap::StartOptions options;
  options.timeout = timeout;
  return options;
}

/// Runs connect_mesh for the given jobs, each on a thread.
inline std::vector<Result<bootstrap::Mesh>> connect_all(
    const std::vector<bootstrap::Job>& jobs,
    const bootstrap::StartOptions& options = within(std::chrono::seconds(60)),
    bootstrap::Store* store = nullptr) {
  std::vector<Result<bootstrap::Mesh>> meshes(jobs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    threads.emplace_back(
        [&, i] { meshes[i] = bootstrap::connect(kNetwork, jobs[i], options, store); });
  }
  for (std::thread& thread : threads) thread.join();
  return meshes;
}

inline std::vector<bootstrap::Job> whole_job(int world_size, std::uint16_t port) {
  std::vector<bootstrap::Job> jobs;
  for (Rank rank = 0; rank < world_size; ++rank) jobs.push_back(job_of(rank, world_size, port));
  return jobs;
}

inline ConstBytes bytes_of(const std::int32_t& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Reads one number from a peer, calling poll() meanwhile.
inline std::int32_t read_number(net::PollingTransport& transport, Rank from) {
  std::int32_t number = -1;
  const Bytes all = std::as_writable_bytes(std::span(&number, 1));
  std::size_t got = 0;
  std::vector<net::ReadyEvent> events;
  const net::Deadline deadline = net::Deadline::after(kClock, std::chrono::seconds(20));
  while (got < all.size() && !deadline.passed()) {
    const Bytes rest = all.subspan(got);
    const auto count = transport.read({from, 0}, std::span(&rest, 1));
    if (!count) ADD_FAILURE() << count.error().message;
    if (!count) return -1;
    got += *count;
    if (*count == 0) transport.poll(std::chrono::milliseconds(100), events);
  }
  return number;
}

/// Every rank sends "from * 1000 + to" to every other, and checks what it receives.
inline void expect_connected(std::vector<Result<bootstrap::Mesh>>& meshes) {
  const auto ranks = static_cast<Rank>(meshes.size());
  for (Rank from = 0; from < ranks; ++from) {
    auto& mesh = meshes[static_cast<std::size_t>(from)];
    ASSERT_TRUE(mesh) << "rank " << from << ": " << mesh.error().message;
    ASSERT_EQ(mesh->endpoints.size(), meshes.size());
    for (Rank to = 0; to < ranks; ++to) {
      if (to == from) continue;
      const std::int32_t number = from * 1000 + to;
      const ConstBytes piece = bytes_of(number);
      ASSERT_EQ(mesh->transport->write({to, 0}, std::span(&piece, 1)).value_or(0), sizeof number);
    }
  }
  for (Rank to = 0; to < ranks; ++to) {
    for (Rank from = 0; from < ranks; ++from) {
      if (to == from) continue;
      auto& transport = *meshes[static_cast<std::size_t>(to)]->transport;
      ASSERT_EQ(read_number(transport, from), from * 1000 + to);
    }
  }
}

}  // namespace gradwire::test

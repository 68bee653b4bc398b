#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/bootstrap/connect.h"
#include "gradwire/net/socket.h"
#include "tests/bootstrap/rank_child.h"
#include "tests/bootstrap/usual_descriptors.h"
#include "tests/support/host.h"
#include "tests/support/start_jobs.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::seconds;
using test::expect_connected;
using test::free_port;
using test::job_of;
using test::whole_job;
using test::within;

/// Connects to `to` as an unauthenticated peer and disconnects, until told to stop. It keeps up to
/// `held` connections open.
class Pest {
 public:
  explicit Pest(net::SocketAddress to, std::size_t held = 200)
      : held_(held), thread_([this, to] { run(to); }) {}
  ~Pest() {
    stop_ = true;
    thread_.join();
  }
  int visits() const { return visits_; }

 private:
  void run(const net::SocketAddress& to) {
    std::vector<net::Socket> silent;
    for (int turn = 0; !stop_; ++turn) {
      auto socket = net::connect_to(to, net::Deadline::after(test::kClock, seconds(1)));
      if (!socket) continue;
      ++visits_;
      const std::string_view says = kWords[static_cast<std::size_t>(turn) % kWords.size()];
      ::send(socket->descriptor(), says.data(), says.size(), MSG_NOSIGNAL);
      // Every other one stays connected and silent; the others disconnect at once, as a port scan
      // does.
      if (turn % 2 == 0 && silent.size() < held_) silent.push_back(std::move(*socket));
    }
  }

  static constexpr std::array<std::string_view, 5> kWords = {
      "GET / HTTP/1.1\r\n\r\n", "", "GRADWIRE", "\x16\x03\x01\x02",
      "GRADWIRE\1more than a hello has, by which nobody should be confused but the sender itself"};
  std::size_t held_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> visits_ = 0;
  std::thread thread_;
};

/// Sets the limit of descriptors of this process and its children.
void allow_at_most(rlim_t descriptors) {
  const rlimit limit = {descriptors, descriptors};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(Connect, UnauthenticatedPeersDoNotExhaustDescriptorsBehindOnePort) {
  const std::uint16_t port = free_port();
  std::vector<Job> jobs = whole_job(3, port);
  for (Job& job : jobs) job.port = port;
  const auto before = [] { allow_at_most(128); };
  test::RankChild zero(jobs[0], seconds(60), before);
  test::RankChild one(jobs[1], seconds(60), before);
  std::unique_ptr<test::RankChild> two;
  {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    // Forked while there is one thread; continues when the unauthenticated peers are connected.
    two = std::make_unique<test::RankChild>(jobs[2], seconds(60), [&] {
      allow_at_most(128);
      char go;
      [[maybe_unused]] const ssize_t got = ::read(pipe[0], &go, 1);
    });
    const Pest pest(*net::SocketAddress::of("127.0.0.1", port), /*held=*/400);
    const net::Deadline deadline = net::Deadline::after(test::kClock, seconds(20));
    while (pest.visits() < 800 && !deadline.passed()) std::this_thread::yield();
    EXPECT_GE(pest.visits(), 800);
    ASSERT_EQ(::write(pipe[1], "g", 1), 1);
    EXPECT_EQ(zero.outcome(), "connected");
    EXPECT_EQ(one.outcome(), "connected");
    EXPECT_EQ(two->outcome(), "connected");
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

TEST(Connect, UnauthenticatedPeersDoNotDisturb) {
  const test::UsualDescriptors usual;
  const std::uint16_t port = free_port();
  // The job starts with two ranks only, so that its port stays open while unauthenticated peers
  // connect.
  std::vector<Result<Mesh>> meshes(8);
  std::vector<std::thread> threads;
  const auto start = [&](std::size_t rank) {
    threads.emplace_back([&, rank] {
      meshes[rank] =
          connect(test::kNetwork, job_of(static_cast<Rank>(rank), 8, port), within(seconds(60)));
    });
  };
  start(0);
  start(1);
  {
    const Pest pest(*net::SocketAddress::of("127.0.0.1", port));
    const net::Deadline deadline = net::Deadline::after(test::kClock, seconds(20));
    while (pest.visits() < 300 && !deadline.passed()) std::this_thread::yield();
    EXPECT_GE(pest.visits(), 300);
    for (std::size_t rank = 2; rank < 8; ++rank) start(rank);
    for (std::thread& thread : threads) thread.join();
  }
  expect_connected(meshes);
}

}  // namespace
}  // namespace gradwire::bootstrap

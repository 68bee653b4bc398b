#include <array>

#include <gtest/gtest.h>

#include "gradwire/engine/executor.h"
#include "tests/engine/messages.h"

namespace gradwire::test {
namespace {

/// Two ranks whose network accepts and delivers any number of bytes at once, so that no read or
/// write is ever short. Rank 0 sends a message to rank 1.
struct NeverShort {
  static constexpr std::size_t kCount = 4 << 20;

  NeverShort() {
    for (Rank r = 0; r < 2; ++r) {
      auto& data = r == 0 ? sent : received;
      engine::OperationRequest request = message(data, 0, 1, r, 2, 0);
      request.timeout = std::chrono::hours(1);
      request.completion = outcomes[static_cast<std::size_t>(r)] = std::make_shared<Outcome>();
      executors[static_cast<std::size_t>(r)]->post(std::move(request), network.now());
    }
  }

  /// Lets rank 0 handle its events until there are none; rank 1 only handles announcements.
  void let_it_all_arrive() {
    const auto until = network.now() + std::chrono::milliseconds(50);
    while (const auto event = network.next(until)) {
      if (event->rank == 0) handle(*event);
    }
  }
  void handle(const net::SimEvent& event) {
    engine::Executor& executor = *executors[static_cast<std::size_t>(event.rank)];
    if (event.ready.writable) executor.on_writable(event.ready.stream(), network.now());
    if (event.ready.readable) executor.on_readable(event.ready.stream(), network.now());
  }
  /// Number of times that rank `r` is due immediately until it has no more work.
  int rounds_of(Rank r) {
    engine::Executor& executor = *executors[static_cast<std::size_t>(r)];
    int rounds = 0;
    for (; executor.next_timer() <= network.now(); ++rounds) executor.on_timer(network.now());
    return rounds;
  }

  net::SimNetwork network{std::vector<net::SimPort>(2, {.bytes_per_second = 1e12}),
                          {.window_bytes = std::size_t{1} << 30}};
  std::vector<float> sent = counting_from(1, kCount);
  std::vector<float> received = std::vector<float>(kCount);
  std::array<std::unique_ptr<engine::Executor>, 2> executors = {
      std::make_unique<engine::Executor>(0, 2, engine::ExecutorOptions{}, network.endpoint(0),
                                         Time{}),
      std::make_unique<engine::Executor>(1, 2, engine::ExecutorOptions{}, network.endpoint(1),
                                         Time{})};
  std::array<std::shared_ptr<Outcome>, 2> outcomes;
};

TEST(Executor, EachCallReadsAndWritesAtMostItsBudget) {
  NeverShort job;
  job.let_it_all_arrive();  // Includes rank 1's announcement, so that rank 0 may send.
  EXPECT_FALSE(job.outcomes[0]->done()) << "one call wrote all of it";
  EXPECT_GE(job.rounds_of(0), 8);
  EXPECT_TRUE(job.outcomes[0]->done());
  job.let_it_all_arrive();

  job.executors[1]->on_readable({0, 0}, job.network.now());
  EXPECT_FALSE(job.outcomes[1]->done()) << "one call read all of it";
  EXPECT_GE(job.rounds_of(1), 8);
  EXPECT_TRUE(job.outcomes[1]->done());
  EXPECT_EQ(job.received, job.sent);
}

}  // namespace
}  // namespace gradwire::test

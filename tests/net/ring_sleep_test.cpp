// Threads that sleep in poll() of a RingTransport are woken, whatever happens concurrently.

#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "gradwire/net/shm/neighbors.h"
#include "tests/net/ring_pair.h"
#include "tests/support/thread_state.h"

namespace gradwire::net {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using test::await_bytes;
using test::Data;
using test::open_pair;
using test::random_data;
using test::soon_enough;
using test::to_peer_of;
using test::write;

/// Each end sleeps whenever the other has not answered yet.
TEST(RingSleep, NoWakeUpIsLost) {
  const auto pair = open_pair(1, true);
  constexpr int kRounds = 20'000;
  const auto play = [&](Rank self) {
    PollingTransport& transport = pair->of(self);
    Random random(static_cast<std::uint64_t>(self));
    const Data ball(8);
    const auto throw_ball = [&] { ASSERT_EQ(write(transport, self, ball), ball.size()); };
    const auto catch_ball = [&] {
      ASSERT_EQ(await_bytes(transport, self).size(), ball.size());
      transport.consume(to_peer_of(self), ball.size());
    };
    for (int i = 0; i < kRounds && !testing::Test::HasFatalFailure(); ++i) {
      if (self == 0) throw_ball();
      catch_ball();
      if (self == 1) throw_ball();
      for (std::uint64_t pause = random.below(2000); pause > 0; --pause) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
}

/// One end sleeps at once; the other answers after about the time that falling asleep takes.
TEST(RingSleep, NoWakeUpIsLostWhileFallingAsleep) {
  const auto pair = open_pair(1, true);
  constexpr int kRounds = 50'000;
  std::thread answering([&] {
    Random random(1);
    const Data ball(1);
    for (int i = 0; i < kRounds; ++i) {
      const Deadline deadline = soon_enough();
      while (pair->of(1).peek(to_peer_of(1)).value_or(ConstBytes()).empty()) {
        ASSERT_FALSE(deadline.passed());
      }
      pair->of(1).consume(to_peer_of(1), 1);
      for (std::uint64_t pause = random.below(1500); pause > 0; --pause) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      ASSERT_EQ(write(pair->of(1), 1, ball), 1u);
    }
  });
  const Data ball(1);
  const Deadline deadline = soon_enough();
  for (int i = 0; i < kRounds && !HasFailure(); ++i) {
    EXPECT_EQ(write(pair->of(0), 0, ball), 1u);
    EXPECT_EQ(await_bytes(pair->of(0), 0).size(), 1u);
    pair->of(0).consume(to_peer_of(0), 1);
  }
  answering.join();
  EXPECT_FALSE(deadline.passed());  // A poll() that was not woken would take an hour.
}

/// Runs poll() on a thread until something is readable.
class Sleeper {
 public:
  explicit Sleeper(PollingTransport& transport) : thread_([this, &transport] { run(transport); }) {}

  /// Waits until the thread sleeps.
  void await_asleep() const {
    const Deadline deadline = soon_enough();
    while (test::thread_state(thread_id_) != 'S') {
      ASSERT_FALSE(deadline.passed());
      std::this_thread::yield();
    }
  }

  bool done() const { return done_; }

  void join() { thread_.join(); }

 private:
  void run(PollingTransport& transport) {
    thread_id_ = ::gettid();
    std::vector<ReadyEvent> events;
    while (std::ranges::none_of(events, &ReadyEvent::readable)) transport.poll(hours(1), events);
    done_ = true;
  }

  std::atomic<pid_t> thread_id_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

void await_one_awake(const Sleeper& first, const Sleeper& second) {
  const Deadline deadline = soon_enough();
  while (!first.done() && !second.done()) {
    ASSERT_FALSE(deadline.passed());
    std::this_thread::yield();
  }
}

/// The reader has seen all available bytes, and sleeps until there are more.
TEST(RingSleep, LittleMoreThanFitsWakesTheReader) {
  const auto pair = open_pair(1, true);
  const Data data = random_data(ring_bytes_for(2) - 1000);
  ASSERT_EQ(write(pair->of(0), 0, data), data.size());
  std::vector<ReadyEvent> events;
  pair->of(1).poll(seconds(20), events);
  ASSERT_EQ(events.size(), 1u);
  Sleeper sleeper(pair->of(1));
  ASSERT_NO_FATAL_FAILURE(sleeper.await_asleep());
  EXPECT_EQ(write(pair->of(0), 0, ConstBytes(data).first(2000)), 1000u);
  sleeper.join();
}

/// Two threads may sleep in poll(); the woken one may take long to return.
TEST(RingSleep, EachSleeperIsWoken) {
  const auto pair = open_pair(1, true);
  Sleeper first(pair->of(0));
  Sleeper second(pair->of(0));
  const Data ball(1);
  ASSERT_NO_FATAL_FAILURE(first.await_asleep());
  ASSERT_NO_FATAL_FAILURE(second.await_asleep());
  ASSERT_EQ(write(pair->of(1), 1, ball), 1u);
  // Either one may wake; the other sleeps on.
  ASSERT_NO_FATAL_FAILURE(await_one_awake(first, second));
  ASSERT_EQ(write(pair->of(1), 1, ball), 1u);
  first.join();
  second.join();
}

/// Writer and reader sleep in turn, at every filling of the ring.
TEST(RingSleep, BlockedWriterIsWokenByRoom) {
  const auto pair = open_pair(1, true);
  const Data data = random_data(40'000'000);
  std::thread sending([&] {
    std::vector<ReadyEvent> events;
    for (ConstBytes rest = data; !rest.empty();) {
      const std::size_t taken = write(pair->of(0), 0, rest);
      rest = rest.subspan(taken);
      if (rest.empty()) break;
      const Deadline deadline = soon_enough();
      do {
        pair->of(0).poll(deadline.left(), events);
        ASSERT_FALSE(deadline.passed());
      } while (std::ranges::none_of(events, &ReadyEvent::writable));
    }
  });
  Data got;
  while (got.size() < data.size()) {
    const ConstBytes there = await_bytes(pair->of(1), 1);
    ASSERT_FALSE(there.empty());
    got.insert(got.end(), there.begin(), there.end());
    pair->of(1).consume(to_peer_of(1), there.size());
  }
  sending.join();
  EXPECT_TRUE(got == data);
}

/// One thread sleeps in poll() for long while another drives the same transport.
TEST(RingSleep, SleeperIsWokenAlthoughAnotherThreadSleptToo) {
  const auto pair = open_pair(1, true);
  PollingTransport& transport = pair->of(0);
  std::atomic<int> readable = 0;
  const auto sleeper = [&] {
    std::vector<ReadyEvent> events;
    while (readable < 1000) {
      transport.poll(seconds(20), events);
      for (const ReadyEvent& event : events) readable += event.readable;
    }
    transport.wake();
  };
  std::thread first(sleeper);
  std::thread second(sleeper);
  for (int i = 0; i < 1000; ++i) {
    const Data ball(1);
    ASSERT_EQ(write(pair->of(1), 1, ball), 1u);
    const Deadline deadline = soon_enough();
    while (readable <= i && !deadline.passed()) std::this_thread::yield();
    ASSERT_GT(readable, i);
  }
  first.join();
  second.join();
}

TEST(RingSleep, WakeEndsASleep) {
  const auto pair = open_pair(1, true);
  std::vector<ReadyEvent> events;
  const Deadline deadline = soon_enough();
  pair->of(0).wake();
  pair->of(0).poll(hours(1), events);
  std::thread waker([&] { pair->of(0).wake(); });
  pair->of(0).poll(hours(1), events);
  waker.join();
  EXPECT_FALSE(deadline.passed());
}

}  // namespace
}  // namespace gradwire::net

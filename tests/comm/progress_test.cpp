#include "gradwire/engine/progress.h"

#include <condition_variable>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "gradwire/comm/planner.h"
#include "gradwire/comm/scheduled_communicator.h"
#include "gradwire/comm/tuner.h"
#include "tests/support/transport_pair.h"

/// Two threads that sleep in one transport's poll.
namespace gradwire::test {
namespace {

/// Lets the test decide which of two sleepers, a waiting thread or the progress thread, gets the
/// events: the kernel may give them to either.
class SharedSleep final : public net::PollingTransport {
 public:
  explicit SharedSleep(std::unique_ptr<net::PollingTransport> inner) : inner_(std::move(inner)) {}

  enum class Sleeper { waiter, thread };
  /// A sleep that no timer ends soon.
  static constexpr Duration kLong = std::chrono::seconds(1);

  void poll(Duration timeout, std::vector<net::ReadyEvent>& events) override {
    events.clear();
    if (timeout == Duration::zero()) return;
    std::unique_lock lock(mutex_);
    const bool waits = std::this_thread::get_id() == waiter_id_;
    State& mine = waits ? waiter_ : thread_;
    if (over_) {
      lock.unlock();
      inner_->poll(timeout, events);
      return;
    }
    mine.asleep = timeout >= kLong;
    changed_.notify_all();
    changed_.wait_for(lock, timeout,
                      [&] { return mine.gets_events || over_ || (mine.gets_wakes && pending_); });
    mine.has_woken |= mine.asleep;
    mine.asleep = false;
    if (mine.gets_wakes) pending_ = false;
    changed_.notify_all();
    if (!mine.gets_events) return;
    // At the end, close() wakes the inner transport without an event.
    while (events.empty() && !over_) {
      lock.unlock();
      inner_->poll(timeout, events);
      lock.lock();
    }
  }

  void wake() override {
    inner_->wake();
    const std::lock_guard lock(mutex_);
    pending_ = true;
    changed_.notify_all();
  }

  int rails(Rank peer) const override { return inner_->rails(peer); }
  Result<std::size_t> write(net::StreamId to, std::span<const ConstBytes> pieces) override {
    return inner_->write(to, pieces);
  }
  Result<std::size_t> read(net::StreamId from, std::span<const Bytes> pieces) override {
    return inner_->read(from, pieces);
  }
  std::size_t delivered(net::StreamId to) override { return inner_->delivered(to); }
  void close(net::StreamId stream) override { inner_->close(stream); }
  std::string describe(net::StreamId stream) const override { return inner_->describe(stream); }

  void this_thread_waits() {
    const std::lock_guard lock(mutex_);
    waiter_id_ = std::this_thread::get_id();
  }
  void give_wakes_to(Sleeper sleeper) {
    const std::lock_guard lock(mutex_);
    waiter_.gets_wakes = sleeper == Sleeper::waiter;
    thread_.gets_wakes = !waiter_.gets_wakes;
  }
  void give_events_to(Sleeper sleeper) {
    const std::lock_guard lock(mutex_);
    (sleeper == Sleeper::waiter ? waiter_ : thread_).gets_events = true;
    changed_.notify_all();
  }
  /// Waits, with a generous timeout, until `sleeper` is asleep. Returns false on timeout.
  bool falls_asleep(Sleeper sleeper) { return comes_to(sleeper, &State::asleep); }
  /// Waits, with a generous timeout, until `sleeper` has woken from a sleep, after which it may
  /// sleep again. Returns false on timeout.
  bool wakes_up(Sleeper sleeper) { return comes_to(sleeper, &State::has_woken); }
  /// Makes all calls pass through from here on.
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

 private:
  struct State {
    bool asleep = false;
    bool has_woken = false;
    bool gets_wakes = false;
    bool gets_events = false;
  };

  bool comes_to(Sleeper sleeper, bool State::*reached) {
    std::unique_lock lock(mutex_);
    const State& state = sleeper == Sleeper::waiter ? waiter_ : thread_;
    return changed_.wait_for(lock, soon_enough().left(), [&] { return state.*reached; });
  }

  std::unique_ptr<net::PollingTransport> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id waiter_id_;
  State waiter_;
  State thread_;
  bool pending_ = false;
  bool over_ = false;
};

using Sleeper = SharedSleep::Sleeper;

/// Two ranks. The progress thread of rank 0 sleeps; another thread waits for a message from rank 1
/// and has received all wake-up events.
struct ProgressHandOver : ::testing::Test {
  void SetUp() override {
    SocketPair pair = connected_pair();
    std::vector<net::Socket> first;
    std::vector<net::Socket> second;
    first.push_back(std::move(pair.first));
    second.push_back(std::move(pair.second));
    Opened opened =
        open_both(connections_of(0, std::move(first)), connections_of(1, std::move(second)));
    ASSERT_TRUE(opened[0] && opened[1]);
    auto shared = std::make_unique<SharedSleep>(std::move(*opened[0]));
    sleep = shared.get();
    sleep->give_wakes_to(Sleeper::waiter);
    ranks.push_back(communicator_of(0, std::move(shared)));
    ranks.push_back(communicator_of(1, std::move(*opened[1])));
    ASSERT_TRUE(sleep->falls_asleep(Sleeper::thread));
    waiter = std::async(std::launch::async, [this] {
      sleep->this_thread_waits();
      ranks[0]->recv({&received, 1, DataType::float32, nullptr}, 1, 0, {}).wait();
    });
    ASSERT_TRUE(sleep->falls_asleep(Sleeper::waiter));
  }

  /// Waits for the thread, with a generous timeout. Returns false on timeout.
  bool returns() { return waiter.wait_for(soon_enough().left()) == std::future_status::ready; }

  void send() { ranks[1]->send({&sent, 1, DataType::float32, nullptr}, 0, 0, {}).wait(); }

  void TearDown() override {
    if (sleep != nullptr) sleep->end();
  }

  std::shared_ptr<Communicator> communicator_of(Rank rank,
                                                std::unique_ptr<net::PollingTransport> over) {
    const engine::ExecutorOptions never_pings{.dead_peer_timeout = std::chrono::hours(1)};
    auto planner = std::make_shared<Planner>(
        rank, topology::JobTopology{.topology = Tuner::assumed(2), .choices = {}},
        ForcedAlgorithms{}, CommunicatorOptions{}.segment_bytes);
    auto engine = std::make_shared<SharedEngine>(
        std::make_shared<engine::Progress>(std::move(over), rank, 2, never_pings, clock));
    return std::make_shared<ScheduledCommunicator>(rank, CommunicatorOptions{}, std::move(planner),
                                                   std::move(engine));
  }

  const std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();
  SharedSleep* sleep = nullptr;
  std::vector<std::shared_ptr<Communicator>> ranks;
  std::future<void> waiter;
  float sent = 7;
  float received = 0;
};

TEST_F(ProgressHandOver, AWaiterIsWokenWhenTheProgressThreadCompletesItsOperation) {
  send();
  sleep->give_events_to(Sleeper::thread);
  ASSERT_TRUE(returns());
  EXPECT_EQ(received, 7);
}

TEST_F(ProgressHandOver, TheProgressThreadPollsWhenTheLastWaiterLeaves) {
  sleep->give_wakes_to(Sleeper::thread);
  send();
  sleep->give_events_to(Sleeper::waiter);
  EXPECT_TRUE(sleep->wakes_up(Sleeper::thread))
      << "it would sleep until what was the next moment when it began to";
  EXPECT_TRUE(returns());
}

TEST_F(ProgressHandOver, AWaiterIsWokenByAnAbort) {
  ranks[0]->abort("the test has seen enough");
  ASSERT_TRUE(returns());
  EXPECT_THROW(waiter.get(), Exception);
}

}  // namespace
}  // namespace gradwire::test

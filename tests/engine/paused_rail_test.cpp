#include <array>
#include <deque>
#include <string>

#include <gtest/gtest.h>

#include "gradwire/engine/executor.h"
#include "tests/engine/messages.h"

namespace gradwire::test {
namespace {

/// Two hosts with two rails; rank 0 sends a message to rank 1. Rank 1 can pause and then handle its
/// rails one after the other, like a process with much to read.
class PausedReceiver {
 public:
  explicit PausedReceiver(Rank sender) : sender_(sender) {
    engine::ExecutorOptions options;
    options.on_warning = [this](const std::string& text) { notices_.push_back(text); };
    for (Rank r = 0; r < 2; ++r) {
      const auto i = static_cast<std::size_t>(r);
      executors_[i] =
          std::make_unique<engine::Executor>(r, 2, options, network_.endpoint(r), Time{});
    }
    for (Rank r = 0; r < 2; ++r) {
      engine::OperationRequest request =
          message(r == sender ? sent_ : received_, sender, 1 - sender, r, 2, 0);
      request.timeout = std::chrono::hours(1);
      request.completion = outcomes_[static_cast<std::size_t>(r)] = std::make_shared<Outcome>();
      executor(r).post(std::move(request), network_.now());
    }
  }

  /// Runs until `duration` has passed or all is done. The receiver handles only events of rails
  /// below `rails`; if 0, it does not handle timers either.
  void run(Duration duration, int rails) {
    const Time until = network_.now() + duration;
    std::deque<net::SimEvent> waiting;
    waiting.swap(unseen_);
    for (const net::SimEvent& event : waiting) hand(event, rails);
    while (network_.now() < until && !done()) {
      Time next = std::min(until, executor(sender_).next_timer());
      if (rails > 0) next = std::min(next, executor(1 - sender_).next_timer());
      if (const auto event = network_.next(std::max(next, network_.now()))) {
        hand(*event, rails);
        continue;
      }
      for (Rank r = 0; r < 2; ++r) {
        if (r != sender_ && rails == 0) continue;
        if (executor(r).next_timer() <= network_.now()) executor(r).on_timer(network_.now());
      }
    }
  }

  bool done() const { return outcomes_[0]->done() && outcomes_[1]->done(); }
  bool is_right() const { return outcomes_[0]->successes == 1 && received_ == sent_; }
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  engine::Executor& executor(Rank rank) { return *executors_[static_cast<std::size_t>(rank)]; }

  void hand(const net::SimEvent& event, int rails) {
    if (event.rank != sender_ && event.ready.rail >= rails) {
      unseen_.push_back(event);
      return;
    }
    if (event.ready.writable) {
      executor(event.rank).on_writable(event.ready.stream(), network_.now());
    }
    if (event.ready.readable) {
      executor(event.rank).on_readable(event.ready.stream(), network_.now());
    }
  }

  Rank sender_;
  std::vector<std::string> notices_;
  std::vector<float> sent_ = counting_from(1, 1 << 20);
  std::vector<float> received_ = std::vector<float>(sent_.size());
  net::SimNetwork network_{std::vector<net::SimHost>(2, {.rails = std::vector<net::SimPort>(2)}),
                           {0, 1},
                           {.window_bytes = 64 * 1024, .unit_bytes = 16 * 1024}};
  std::array<std::unique_ptr<engine::Executor>, 2> executors_;
  std::array<std::shared_ptr<Outcome>, 2> outcomes_;
  std::deque<net::SimEvent> unseen_;
};

/// The lower rank decides whether a rail has failed, whichever rank paused.
class APausedRank : public testing::TestWithParam<Rank> {};

TEST_P(APausedRank, CostsNoRail) {
  PausedReceiver job(GetParam());
  job.run(std::chrono::milliseconds(5), 2);
  job.run(std::chrono::seconds(3), 0);
  job.run(std::chrono::milliseconds(120), 1);
  ASSERT_FALSE(job.done()) << "rail 1 still has unread bytes of it";
  job.run(std::chrono::seconds(5), 2);
  EXPECT_TRUE(job.is_right());
  EXPECT_TRUE(job.notices().empty()) << job.notices().front();
}

INSTANTIATE_TEST_SUITE_P(Senders, APausedRank, testing::Values(0, 1));

}  // namespace
}  // namespace gradwire::test

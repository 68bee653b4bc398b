#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/engine/simulated_job.h"
#include "tests/support/sim_collective.h"

/// Operations of higher priority overtake those in flight: the gradients of the first layers are
/// complete last and needed first. In virtual time, so that comparisons do not depend on the
/// machine.
namespace gradwire::test {
namespace {

constexpr int kRanks = 4;
constexpr Time kLatest{std::chrono::seconds(10)};

/// Records when the last of its ranks completed.
class Ended final : public engine::Completion {
 public:
  explicit Ended(const engine::SimulatedJob& job) : job_(job) {}

  void succeeded() override {
    ++ranks_;
    at_ = std::max(at_, job_.now());
  }
  void failed(const Error& error) override { ADD_FAILURE() << error.message; }

  bool everywhere() const { return ranks_ == kRanks; }
  Time at() const { return at_; }

 private:
  const engine::SimulatedJob& job_;
  int ranks_ = 0;
  Time at_{};
};

/// Ranks at 1 Gb/s whose kernels buffer little, so that priority bytes wait only briefly.
class PriorityJob {
 public:
  /// All ranks call an all-reduce of `count` float32 now.
  std::shared_ptr<const Ended> all_reduce(std::size_t count, int priority,
                                          const std::string& algorithm) {
    const auto ended = std::make_shared<Ended>(job_);
    const Case c{.algorithm = algorithm, .ranks = kRanks, .count = count};
    for (Rank r = 0; r < kRanks; ++r) {
      memories_.push_back(std::make_unique<Memory>(make_input(c, r, 1)));
      const Memory& input = *memories_.back();
      memories_.push_back(std::make_unique<Memory>());
      engine::OperationRequest request = make_request(c, r, input, *memories_.back(), ended);
      request.priority = priority;
      job_.executor(r).post(std::move(request), job_.now());
    }
    operations_.push_back(ended);
    return ended;
  }

  void pass(Duration time) {
    job_.run(job_.now() + time, [] { return false; });
  }

  void finish() {
    EXPECT_TRUE(job_.run(kLatest, [&] {
      return std::ranges::all_of(operations_, [](const auto& o) { return o->everywhere(); });
    }));
  }

  Time now() const { return job_.now(); }

 private:
  engine::SimulatedJob job_{std::vector<net::SimPort>(kRanks), {.window_bytes = 64 << 10}, {}};
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<std::shared_ptr<const Ended>> operations_;
};

struct Overtaking {
  Duration small{}, bulky{};  ///< From each call until all ranks had the result.
  bool first = false;         ///< The small one completed before the bulky one.
};

/// Calls a small operation while a bulky one is in flight.
Overtaking overtake(int priority, const std::string& algorithm) {
  PriorityJob job;
  const Time begin = job.now();
  const auto bulky = job.all_reduce(2 << 20, 0, algorithm);
  job.pass(std::chrono::milliseconds(5));
  const Time called = job.now();
  const auto small = job.all_reduce(16 << 10, priority, algorithm);
  job.finish();
  return {small->at() - called, bulky->at() - begin, small->at() < bulky->at()};
}

class Priority : public testing::TestWithParam<const char*> {};

TEST_P(Priority, HighPriorityOvertakesOperationsInFlight) {
  const Overtaking preferred = overtake(1, GetParam());
  const Overtaking usual = overtake(0, GetParam());
  EXPECT_TRUE(preferred.first);
  EXPECT_LT(preferred.small, usual.small / 3);
  // It delays the other only by the time of its own bytes, about half a millisecond.
  EXPECT_LT(preferred.bulky, usual.bulky + std::chrono::milliseconds(5));
}

TEST_P(Priority, TheHighestPriorityCompletesFirst) {
  constexpr int kBuckets = 6;
  PriorityJob job;
  std::vector<std::shared_ptr<const Ended>> buckets;
  for (int i = 0; i < kBuckets; ++i) buckets.push_back(job.all_reduce(512 << 10, i, GetParam()));
  job.finish();
  for (std::size_t i = 1; i < kBuckets; ++i) EXPECT_LT(buckets[i]->at(), buckets[i - 1]->at()) << i;
}

INSTANTIATE_TEST_SUITE_P(By, Priority, testing::Values("ring", "direct"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace gradwire::test

#include "gradwire/servers/sample_dealer.h"

#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"

namespace gradwire::servers::test {
namespace {

/// Workers that ask, accumulate, push, are late and die, at random.
class RandomRun {
 public:
  RandomRun(std::uint64_t seed, std::int64_t samples, std::int64_t epochs, int workers)
      : random_(seed),
        dealer_(samples, epochs, workers),
        workers_(static_cast<std::size_t>(workers)),
        push_every_(random_.between(1, 3)),
        total_(samples * epochs) {}

  /// Returns how often each sample of each epoch was applied.
  std::map<std::pair<std::int64_t, std::int64_t>, int> run() {
    int living = static_cast<int>(workers_.size());
    while (living > 0 && turns_++ < 1'000'000) {
      const auto rank = static_cast<Rank>(random_.below(workers_.size()));
      Worker& worker = workers_[static_cast<std::size_t>(rank)];
      if (worker.gone || worker.waits) continue;
      const bool dies = living > 1 && random_.below(40) == 0;
      if (dies || worker.ends) {
        worker.gone = true;
        --living;
        dealer_.on_gone(rank);
      } else if (worker.accumulated == push_every_ || worker.pushes) {
        push(rank, worker);
      } else {
        worker.waits = true;
        dealer_.on_take(rank, random_.between(1, 9));
      }
      for (const auto& [to, deal] : dealer_.take_answers()) answer(to, deal);
    }
    return applied_;
  }

  const SampleDealer& dealer() const { return dealer_; }
  std::int64_t total() const { return total_; }

 private:
  struct Worker {
    std::int64_t accumulated = 0;
    bool waits = false, pushes = false, ends = false, gone = false;
  };

  void push(Rank rank, Worker& worker) {
    const auto batches = dealer_.on_push(rank, worker.accumulated);
    worker.accumulated = 0;
    worker.pushes = false;
    if (random_.below(4) == 0) return dealer_.on_dropped(batches);  // It was late.
    dealer_.on_applied(batches);
    for (const Deal& batch : batches) {
      for (std::int64_t i = 0; i < batch.count; ++i) ++applied_[{batch.epoch, batch.begin + i}];
    }
  }

  void answer(Rank to, const Deal& deal) {
    Worker& worker = workers_[static_cast<std::size_t>(to)];
    worker.waits = false;
    if (deal.count > 0) {
      ++worker.accumulated;
    } else {
      worker.pushes = worker.accumulated > 0;
      worker.ends = !worker.pushes;
    }
  }

  Random random_;
  SampleDealer dealer_;
  std::vector<Worker> workers_;
  std::int64_t push_every_, total_;
  int turns_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, int> applied_;
};

TEST(SampleDealer, UsesEachSampleOnceWhateverHappens) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    RandomRun run(seed, 37, 3, 4);
    const auto applied = run.run();
    ASSERT_EQ(static_cast<std::int64_t>(applied.size()), run.total()) << seed;
    for (const auto& [sample, times] : applied) ASSERT_EQ(times, 1) << seed;
    EXPECT_EQ(run.dealer().applied(), run.total());
  }
}

TEST(SampleDealer, DealsAnEpochInOrderAndBeginsTheNextAtOnce) {
  SampleDealer dealer(10, 2, 2);
  std::vector<Deal> dealt;
  for (int i = 0; i < 6; ++i) {
    dealer.on_take(i % 2, 4);
    for (const auto& [worker, deal] : dealer.take_answers()) dealt.push_back(deal);
  }
  std::vector<std::vector<std::int64_t>> as_numbers;
  for (const Deal& deal : dealt) as_numbers.push_back({deal.epoch, deal.begin, deal.count});
  EXPECT_THAT(
      as_numbers,
      testing::ElementsAre(std::vector<std::int64_t>{0, 0, 4}, std::vector<std::int64_t>{0, 4, 4},
                           std::vector<std::int64_t>{0, 8, 2}, std::vector<std::int64_t>{1, 0, 4},
                           std::vector<std::int64_t>{1, 4, 4}, std::vector<std::int64_t>{1, 8, 2}));
}

TEST(SampleDealer, AWorkerWaitsForWhatAnotherMayNotPush) {
  SampleDealer dealer(4, 1, 2);
  dealer.on_take(0, 4);
  ASSERT_EQ(dealer.take_answers().size(), 1U);
  dealer.on_take(1, 4);
  EXPECT_TRUE(dealer.take_answers().empty());
  dealer.on_gone(0);
  const auto answers = dealer.take_answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].first, 1);
  EXPECT_EQ(answers[0].second.count, 4);
}

TEST(SampleDealer, RefusesWhatNoWorkerDoes) {
  SampleDealer dealer(4, 1, 2);
  EXPECT_THROW(dealer.on_take(0, 0), Exception);
  dealer.on_take(0, 2);
  EXPECT_THROW(dealer.on_take(0, 2), Exception);
  dealer.take_answers();
  EXPECT_THROW(dealer.on_push(0, 2), Exception);
  EXPECT_THROW(dealer.on_push(0, -1), Exception);
  EXPECT_EQ(dealer.on_push(0, 1).size(), 1U);
  EXPECT_THROW(SampleDealer(0, 1, 1), Exception);
}

}  // namespace
}  // namespace gradwire::servers::test

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
      if (worker.gone) continue;
      const bool dies = living > 1 && random_.below(40) == 0;
      if (dies || dealer_.applied() == total_) {
        worker.gone = true;
        --living;
        dealer_.on_gone(rank);
      } else if (worker.accumulated == push_every_) {
        push(rank, worker);
      } else if (dealer_.on_take(rank, random_.between(1, 9)).count > 0) {
        ++worker.accumulated;
      } else if (worker.accumulated > 0) {
        push(rank, worker);
      }
    }
    return applied_;
  }

  const SampleDealer& dealer() const { return dealer_; }
  std::int64_t total() const { return total_; }

 private:
  struct Worker {
    std::int64_t accumulated = 0;
    bool gone = false;
  };

  void push(Rank rank, Worker& worker) {
    const auto batches = dealer_.on_push(rank, worker.accumulated);
    worker.accumulated = 0;
    if (random_.below(4) == 0) return dealer_.on_dropped(batches);  // It was late.
    dealer_.on_applied(batches);
    for (const Deal& batch : batches) {
      for (std::int64_t i = 0; i < batch.count; ++i) ++applied_[{batch.epoch, batch.begin + i}];
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
  for (int i = 0; i < 6; ++i) dealt.push_back(dealer.on_take(i % 2, 4));
  std::vector<std::vector<std::int64_t>> as_numbers;
  for (const Deal& deal : dealt) as_numbers.push_back({deal.epoch, deal.begin, deal.count});
  EXPECT_THAT(
      as_numbers,
      testing::ElementsAre(std::vector<std::int64_t>{0, 0, 4}, std::vector<std::int64_t>{0, 4, 4},
                           std::vector<std::int64_t>{0, 8, 2}, std::vector<std::int64_t>{1, 0, 4},
                           std::vector<std::int64_t>{1, 4, 4}, std::vector<std::int64_t>{1, 8, 2}));
}

TEST(SampleDealer, DealsAgainWhatALostWorkerHadNotPushed) {
  SampleDealer dealer(4, 1, 2);
  EXPECT_EQ(dealer.on_take(0, 4).count, 4);
  EXPECT_EQ(dealer.on_take(1, 4).count, 0);
  dealer.on_gone(0);
  EXPECT_EQ(dealer.on_take(1, 4).count, 4);
  dealer.on_applied(dealer.on_push(1, 1));
  const Deal end = dealer.on_take(1, 4);
  EXPECT_EQ(end.count, 0);
  EXPECT_EQ(end.applied, 4);
}

TEST(SampleDealer, SaysHowMuchAWorkerHasTakenBesideTheFastest) {
  SampleDealer dealer(100, 1, 2);
  for (int i = 0; i < 3; ++i) dealer.on_take(0, 8);
  const Deal slow = dealer.on_take(1, 8);
  EXPECT_EQ(slow.taken, 8);
  EXPECT_EQ(slow.most, 24);
}

TEST(SampleDealer, GoesOnWhereARunWasSaved) {
  SampleDealer saved(10, 2, 2);
  saved.on_take(0, 4);
  saved.on_take(1, 4);
  saved.on_take(0, 4);
  saved.on_applied(saved.on_push(0, 1));
  saved.on_dropped(saved.on_push(1, 1));
  const DealProgress progress = decode_progress(encode(saved.progress()));
  EXPECT_EQ(progress.dealt, 10);
  EXPECT_EQ(progress.applied(), 4);
  SampleDealer resumed(10, 2, 1, progress);
  EXPECT_EQ(resumed.applied(), 4);
  std::multiset<std::int64_t> used;
  while (resumed.applied() < 20) {
    const Deal dealt = resumed.on_take(0, 3);
    for (std::int64_t i = 0; i < dealt.count; ++i) used.insert(dealt.epoch * 10 + dealt.begin + i);
    resumed.on_applied(resumed.on_push(0, 1));
  }
  std::multiset<std::int64_t> expected;
  for (std::int64_t sample = 4; sample < 20; ++sample) expected.insert(sample);
  EXPECT_EQ(used, expected);
  EXPECT_EQ(SampleDealer(10, 2, 1, resumed.progress()).on_take(0, 3).count, 0);
}

TEST(SampleDealer, RefusesProgressOfAnotherRun) {
  EXPECT_THROW(SampleDealer(10, 2, 1, {.dealt = 21, .unapplied = {}}), Exception);
  EXPECT_THROW(SampleDealer(10, 2, 1, {.dealt = -1, .unapplied = {}}), Exception);
  for (const Deal& batch :
       {Deal{.epoch = 2, .begin = 0, .count = 1}, Deal{.epoch = 0, .begin = 8, .count = 3},
        Deal{.epoch = 0, .begin = -1, .count = 3}, Deal{.epoch = 0, .begin = 0, .count = 0},
        Deal{.epoch = 0, .begin = INT64_MAX, .count = 1}}) {
    EXPECT_THROW(SampleDealer(10, 2, 1, {.dealt = 20, .unapplied = {batch}}), Exception);
  }
  EXPECT_THROW(SampleDealer(4, 1, 1, {.dealt = 2, .unapplied = {{.begin = 0, .count = 3}}}),
               Exception);
  EXPECT_THROW(decode_progress({}), Exception);
  EXPECT_THROW(decode_progress({1, 2}), Exception);
}

TEST(SampleDealer, RefusesWhatNoWorkerDoes) {
  SampleDealer dealer(4, 1, 2);
  EXPECT_THROW(dealer.on_take(0, 0), Exception);
  dealer.on_take(0, 2);
  EXPECT_THROW(dealer.on_push(0, 2), Exception);
  EXPECT_THROW(dealer.on_push(0, -1), Exception);
  EXPECT_EQ(dealer.on_push(0, 1).size(), 1U);
  EXPECT_THROW(SampleDealer(0, 1, 1), Exception);
}

TEST(DealShare, CountsEachSampleTheSame) {
  for (int members = 1; members <= 5; ++members) {
    for (std::int64_t samples = 1; samples <= 12; ++samples) {
      std::vector<double> weights(static_cast<std::size_t>(samples));
      double sum = 0;
      for (int member = 0; member < members; ++member) {
        const auto [batch, weight] = share_of({.begin = 7, .count = samples}, member, members);
        ASSERT_GE(batch.count, 1);
        sum += weight;
        for (std::int64_t i = 0; i < batch.count; ++i) {
          weights.at(static_cast<std::size_t>(batch.begin - 7 + i)) +=
              weight / static_cast<double>(batch.count);
        }
      }
      EXPECT_NEAR(sum, members, 1e-12);
      for (const double weight : weights) {
        EXPECT_NEAR(weight, static_cast<double>(members) / static_cast<double>(samples), 1e-12);
      }
    }
  }
  EXPECT_EQ(share_of({.applied = 3}, 1, 4).batch.applied, 3);
}

}  // namespace
}  // namespace gradwire::servers::test

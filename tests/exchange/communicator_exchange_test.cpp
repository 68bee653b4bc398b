#include "gradwire/exchange/communicator_exchange.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/support/exchanging.h"

namespace gradwire::test {
namespace {

constexpr std::size_t kUnits = 3;

std::size_t shard_of(std::size_t unit) {
  return 5 + 1000 * unit;
}

LentSpan lend(std::vector<float>& values) {
  return {.data = values.data(), .count = values.size()};
}

/// Returns this rank's part.
std::vector<float> part_of(const std::vector<float>& whole, Rank rank, std::size_t shard) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(shard) * rank;
  return {begin, begin + static_cast<std::ptrdiff_t>(shard)};
}

class CommunicatorExchanges : public ::testing::TestWithParam<int> {};

TEST_P(CommunicatorExchanges, ReduceAndGather) {
  const int ranks = GetParam();
  LocalJob job(ranks);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange =
        exchange::communicator_exchange(shared(c), std::vector<exchange::UnitShape>(kUnits));
    std::vector<std::vector<float>> whole, part(kUnits), back(kUnits);
    std::vector<Work> reductions, gathers;
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      const std::size_t count = shard_of(unit) * static_cast<std::size_t>(ranks);
      whole.push_back(draw_gradient(count, 10 * unit + static_cast<std::uint64_t>(rank)));
      part[unit].resize(shard_of(unit));
      back[unit].resize(count);
      reductions.push_back(exchange->reduce_scatter(unit, lend(whole[unit]), lend(part[unit]),
                                                    static_cast<int>(unit)));
    }
    for (std::size_t unit = kUnits; unit-- > 0;) {
      reductions[unit].wait();
      EXPECT_TRUE(reductions[unit].done());
    }
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      gathers.push_back(exchange->all_gather(unit, lend(part[unit]), lend(back[unit]), 1));
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      gathers[unit].wait();
      std::vector<double> mean(whole[unit].size());
      for (int r = 0; r < ranks; ++r) {
        const auto theirs = draw_gradient(mean.size(), 10 * unit + static_cast<std::uint64_t>(r));
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += theirs[i] / double(ranks);
      }
      for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(back[unit][i], mean[i], 1e-5);
      EXPECT_EQ(part_of(back[unit], rank, shard_of(unit)), part[unit]);
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorExchanges, ::testing::Values(1, 2, 3));

TEST(CommunicatorExchange, GathersUnitsInAnyOrder) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange =
        exchange::communicator_exchange(shared(c), std::vector<exchange::UnitShape>(8));
    EXPECT_EQ(exchange->traits().order, exchange::OperationOrder::by_unit);
    std::map<std::size_t, std::vector<float>> part, whole;
    std::map<std::size_t, Work> gathers;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t unit = rank == 0 ? i : 7 - i;
      part[unit] = {static_cast<float>(10 * unit) + static_cast<float>(rank)};
      whole[unit].resize(2);
      gathers[unit] = exchange->all_gather(unit, lend(part[unit]), lend(whole[unit]), 0);
    }
    for (std::size_t unit = 0; unit < 8; ++unit) {
      gathers[unit].wait();
      const auto first = static_cast<float>(10 * unit);
      EXPECT_EQ(whole[unit], (std::vector<float>{first, first + 1}));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(CommunicatorExchange, RefusesShardsThatDoNotMakeAUnit) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank, Communicator& c) {
    const auto exchange =
        exchange::communicator_exchange(shared(c), std::vector<exchange::UnitShape>(1));
    std::vector<float> part(3), whole(7);
    EXPECT_THROW(exchange->all_gather(0, lend(part), lend(whole), 0), Exception);
    EXPECT_THROW(exchange->reduce_scatter(0, lend(whole), lend(part), 0), Exception);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(LocalExchange, CopiesUnlessMemoryIsTheSame) {
  const auto exchange = exchange::local_exchange();
  std::vector<float> whole{1, 2}, part(2), back(2);
  exchange->all_reduce(0, lend(whole), 0).wait();
  exchange->reduce_scatter(0, lend(whole), lend(whole), 0).wait();
  exchange->reduce_scatter(0, lend(whole), lend(part), 0).wait();
  EXPECT_EQ(part, (std::vector<float>{1, 2}));
  const auto gather = exchange->all_gather(0, lend(part), lend(back), 0);
  EXPECT_TRUE(gather.done());
  EXPECT_EQ(back, (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace gradwire::test

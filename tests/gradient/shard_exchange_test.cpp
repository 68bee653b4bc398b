#include "gradwire/gradient/shard_exchange.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/gradient/averaging.h"

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

class ShardExchanges : public ::testing::TestWithParam<int> {};

TEST_P(ShardExchanges, ReduceAndGather) {
  const int ranks = GetParam();
  LocalJob job(ranks);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = shard_exchange(shared(c), kUnits);
    std::vector<std::vector<float>> whole, part(kUnits), back(kUnits);
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      const std::size_t count = shard_of(unit) * static_cast<std::size_t>(ranks);
      whole.push_back(draw_gradient(count, 10 * unit + static_cast<std::uint64_t>(rank)));
      part[unit].resize(shard_of(unit));
      back[unit].resize(count);
      exchange->start_reduce(unit, lend(whole[unit]), lend(part[unit]), static_cast<int>(unit));
    }
    for (std::size_t unit = kUnits; unit-- > 0;) {
      exchange->wait_reduce(unit);
      EXPECT_TRUE(exchange->reduced(unit));
    }
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      exchange->start_gather(unit, lend(part[unit]), lend(back[unit]), 1);
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      exchange->wait_gather(unit);
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

INSTANTIATE_TEST_SUITE_P(Ranks, ShardExchanges, ::testing::Values(1, 2, 3));

TEST(ShardExchange, GathersInAnyOrderIfAskedTo) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = shard_exchange(shared(c), 8, {.gathers_in_any_order = true});
    std::map<std::size_t, std::vector<float>> part, whole;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t unit = rank == 0 ? i : 7 - i;
      part[unit] = {static_cast<float>(10 * unit) + static_cast<float>(rank)};
      whole[unit].resize(2);
      exchange->start_gather(unit, lend(part[unit]), lend(whole[unit]), 0);
    }
    for (std::size_t unit = 0; unit < 8; ++unit) {
      exchange->wait_gather(unit);
      const auto first = static_cast<float>(10 * unit);
      EXPECT_EQ(whole[unit], (std::vector<float>{first, first + 1}));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShardExchange, RefusesPartsThatDoNotMakeAUnit) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank, Communicator& c) {
    const auto exchange = shard_exchange(shared(c), 1);
    std::vector<float> part(3), whole(7);
    EXPECT_THROW(exchange->start_gather(0, lend(part), lend(whole), 0), Exception);
    EXPECT_THROW(exchange->start_reduce(0, lend(whole), lend(part), 0), Exception);
    exchange->wait_gather(0);  // Nothing was started.
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShardExchange, RecordsOperationsInFlight) {
  SteadyClock clock;
  TraceRecorder trace(clock);
  LocalJob job(2);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = shard_exchange(shared(c), 4, {.trace = rank == 0 ? &trace : nullptr});
    std::vector<float> part(3), whole(6);
    exchange->start_gather(3, lend(part), lend(whole), 0);
    exchange->wait_gather(3);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  const TraceLog log = trace.log();
  const auto gathers = std::ranges::count_if(log.spans, [&](const TraceSpan& span) {
    return span.kind == TraceKind::communication && log.names[span.name] == "gather 3";
  });
  EXPECT_EQ(gathers, 1);
}

}  // namespace
}  // namespace gradwire::test

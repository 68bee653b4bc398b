#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/codec/catalogue.h"
#include "gradwire/exchange/coded_layout.h"
#include "tests/support/exchanging.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kShard = 10'000;

LentSpan lend(std::vector<float>& values) {
  return {.data = values.data(), .count = values.size()};
}

exchange::UnitShape unit_for(int ranks) {
  return {.count = kShard * static_cast<std::size_t>(ranks)};
}

std::vector<float> gradient_of(int ranks, Rank rank, int pass) {
  return draw_gradient(unit_for(ranks).count, static_cast<std::uint64_t>(100 * pass + rank));
}

/// Reduces one unit repeatedly; returns this rank's part of each result.
std::vector<std::vector<float>> reduce(exchange::Exchange& exchange, int ranks, Rank rank,
                                       int first, int passes) {
  std::vector<std::vector<float>> parts;
  for (int pass = first; pass < first + passes; ++pass) {
    std::vector<float> unit = gradient_of(ranks, rank, pass);
    std::vector<float>& part = parts.emplace_back(kShard);
    const Work work = exchange.reduce_scatter(0, lend(unit), lend(part), 0);
    work.wait();
    EXPECT_TRUE(work.done());
    exchange.end_pass();
  }
  return parts;
}

/// Returns the distance between the sums over passes of the true mean's part and of the results,
/// relative to the norm of one pass.
double drift(const std::vector<std::vector<float>>& parts, int ranks, Rank rank) {
  double lost = 0, all = 0;
  std::vector<double> residual(kShard);
  for (std::size_t pass = 0; pass < parts.size(); ++pass) {
    std::vector<double> mean(kShard);
    for (Rank r = 0; r < ranks; ++r) {
      const auto theirs = gradient_of(ranks, r, static_cast<int>(pass));
      const std::size_t begin = kShard * static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < kShard; ++i) mean[i] += theirs[begin + i] / double(ranks);
    }
    for (std::size_t i = 0; i < kShard; ++i) residual[i] += mean[i] - parts[pass][i];
    for (const double value : mean) all += value * value / double(parts.size());
  }
  for (const double value : residual) lost += value * value;
  return std::sqrt(lost / all);
}

class ShardedCodecs : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedCodecs, ::testing::Values(1, 2, 3));

TEST_P(ShardedCodecs, ResidualsAreDelivered) {
  const int ranks = GetParam();
  LocalJob job(ranks);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(
        shared(c), {unit_for(ranks)}, {.codec = "int8", .piece_elements = 7000, .sharded = true});
    const auto parts = reduce(*exchange, ranks, rank, 0, 20);
    // The residual after 20 passes is no larger than after one.
    EXPECT_LT(drift(parts, ranks, rank), 0.02);
  }));
}

TEST_P(ShardedCodecs, GathersAreExact) {
  const int ranks = GetParam();
  LocalJob job(ranks);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const auto exchange =
        exchange::make_exchange(shared(c), {unit_for(ranks)}, {.codec = "top_k", .sharded = true});
    std::vector<float> part(kShard, static_cast<float>(rank) + 0.1f);
    std::vector<float> unit(unit_for(ranks).count);
    exchange->all_gather(0, lend(part), lend(unit), 0).wait();
    EXPECT_EQ(unit.back(), static_cast<float>(ranks - 1) + 0.1f);
  }));
}

TEST(ShardedCodec, SendsOnlyToOwners) {
  constexpr int kRanks = 3;
  LocalJob job(kRanks);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const auto exchange =
        exchange::make_exchange(shared(c), {unit_for(kRanks)}, {.codec = "int8", .sharded = true});
    c.barrier().wait();
    const std::size_t before = c.payload_bytes_sent();
    reduce(*exchange, kRanks, rank, 0, 1);
    c.barrier().wait();
    const auto codec =
        value_or_throw(codec::make_codec(value_or_throw(codec::parse_codec("int8"))));
    const std::size_t slot = (codec->encoded_bytes(kShard) + 15) / 16 * 16;
    EXPECT_EQ(c.payload_bytes_sent() - before, (kRanks - 1) * slot);
  }));
}

TEST(ShardedCodec, GoesOnFromItsStateWithTheSameBits) {
  LocalJob job(2);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const exchange::ExchangeOptions codec{.codec = "int4", .sharded = true};
    const auto first = exchange::make_exchange(shared(c), {unit_for(2)}, codec);
    reduce(*first, 2, rank, 0, 3);
    const StateCopy state(*first);
    const auto expected = reduce(*first, 2, rank, 3, 2);
    const auto second = exchange::make_exchange(shared(c), {unit_for(2)}, codec);
    second->load_state(state.saved());
    EXPECT_EQ(reduce(*second, 2, rank, 3, 2), expected);
  }));
}

TEST(ShardedCodec, BeginsAnewWhereUnitsAreOthers) {
  LocalJob job(2);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const exchange::ExchangeOptions codec{.codec = "int4", .sharded = true};
    const auto other = exchange::make_exchange(shared(c), {{.count = 640}}, codec);
    std::vector<float> unit(640, 0.3f), part(320);
    other->reduce_scatter(0, lend(unit), lend(part), 0).wait();
    other->end_pass();
    const StateCopy state(*other);
    const auto exchange = exchange::make_exchange(shared(c), {unit_for(2)}, codec);
    exchange->load_state(state.saved());
    EXPECT_LT(drift(reduce(*exchange, 2, rank, 0, 1), 2, rank), 0.2);
  }));
}

TEST(ShardedCodec, TakesCodecsOfSingleValuesOnly) {
  LocalJob job(2);
  for (const char* codec : {"power_sgd:2", "auto", "auto:int8"}) {
    const auto errors = job.run([&](Rank, Communicator& c) {
      exchange::make_exchange(shared(c), {unit_for(2)}, {.codec = codec, .sharded = true});
    });
    EXPECT_THAT(errors[0], HasSubstr("element-wise codec")) << codec;
  }
}

TEST(CutShardsIntoPieces, EachPieceHasARangeOfEveryPart) {
  for (const std::size_t shard : {1u, 65u, 10'000u, 100'003u}) {
    for (const int ranks : {1, 2, 5}) {
      const auto parts = static_cast<std::size_t>(ranks);
      std::size_t at = 0;
      for (const exchange::CodedPieceLayout& piece :
           exchange::cut_shards_into_pieces(shard * parts, 40'000, ranks)) {
        ASSERT_EQ(piece.parts.size(), parts);
        for (std::size_t r = 0; r < parts; ++r) {
          EXPECT_EQ(piece.parts[r].begin, r * shard + at);
          EXPECT_EQ(piece.parts[r].count(), piece.parts[0].count());
        }
        at += piece.parts[0].count();
      }
      EXPECT_EQ(at, shard);
    }
  }
}

}  // namespace
}  // namespace gradwire::test

#include "gradwire/data/sampler.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"

namespace gradwire {
namespace {

std::vector<Sampler> all_ranks(SamplerOptions options) {
  std::vector<Sampler> samplers;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    samplers.emplace_back(options);
  }
  return samplers;
}

/// Counts how often any sampler owns each sample in an epoch.
std::map<std::int64_t, int> own_counts(std::vector<Sampler>& samplers, std::int64_t epoch) {
  std::map<std::int64_t, int> counts;
  for (auto& sampler : samplers) {
    sampler.start_epoch(epoch);
    EXPECT_EQ(sampler.batches(), samplers[0].batches());
    for (std::int64_t step = 0; step < sampler.batches(); ++step) {
      const auto batch = sampler.batch(step);
      EXPECT_EQ(std::ssize(batch.samples), sampler.options().batch_size);
      for (std::int64_t i = 0; i < batch.own; ++i) ++counts[batch.samples[std::size_t(i)]];
    }
  }
  return counts;
}

SamplerOptions random_options(Random& random) {
  return {.samples = random.between(1, 300),
          .batch_size = random.between(1, 20),
          .world_size = static_cast<int>(random.between(1, 9)),
          .seed = random.next(),
          .shuffle = random.one_in(2),
          .uneven = UnevenBatch::pad};
}

TEST(Sampler, PaddedEveryEpochHasEverySampleExactlyOnce) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    auto options = random_options(random);
    auto samplers = all_ranks(options);
    const auto counts = own_counts(samplers, random.between(0, 5));
    EXPECT_EQ(std::ssize(counts), options.samples);
    for (const auto& [sample, count] : counts) {
      EXPECT_TRUE(sample >= 0 && sample < options.samples);
      EXPECT_EQ(count, 1);
    }
  }
}

TEST(Sampler, DroppedNoSampleTwiceAndLessThanABatchEachLeftOut) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    auto options = random_options(random);
    options.uneven = UnevenBatch::drop;
    const auto global = options.batch_size * options.world_size;
    if (options.samples < global) {
      EXPECT_THROW(Sampler{options}, Exception);
      continue;
    }
    auto samplers = all_ranks(options);
    const auto counts = own_counts(samplers, 0);
    EXPECT_EQ(std::ssize(counts), options.samples / global * global);
    EXPECT_TRUE(std::ranges::all_of(counts, [](const auto& c) { return c.second == 1; }));
  }
}

TEST(Sampler, RanksTogetherTakeWhatOneRankWouldTake) {
  const SamplerOptions options{.samples = 100, .batch_size = 12, .seed = 5};
  const Sampler alone(options);
  auto part = options;
  part.batch_size = 3;
  part.world_size = 4;
  const auto samplers = all_ranks(part);
  for (std::int64_t step = 0; step < alone.batches(); ++step) {
    std::vector<std::int64_t> together;
    for (const auto& sampler : samplers) {
      const auto samples = sampler.batch(step).samples;
      together.insert(together.end(), samples.begin(), samples.end());
    }
    EXPECT_EQ(together, alone.batch(step).samples);
  }
}

TEST(Sampler, ShufflesAnewEachEpochAndRepeatsForTheSameSeed) {
  const SamplerOptions options{.samples = 1000, .batch_size = 1000, .seed = 5};
  Sampler sampler(options);
  const auto first = sampler.batch(0).samples;
  sampler.start_epoch(1);
  const auto second = sampler.batch(0).samples;
  EXPECT_NE(first, second);
  sampler.start_epoch(0);
  EXPECT_EQ(sampler.batch(0).samples, first);
  auto other = options;
  other.seed = 6;
  EXPECT_NE(Sampler(other).batch(0).samples, first);
  EXPECT_NE(Sampler(other).batch(0).samples, second) << "seed and epoch must not be exchangeable";
}

TEST(Sampler, WithoutShufflingKeepsTheOrder) {
  const Sampler sampler(
      {.samples = 3, .batch_size = 4, .shuffle = false, .uneven = UnevenBatch::pad});
  EXPECT_EQ(sampler.batch(0).samples, (std::vector<std::int64_t>{0, 1, 2, 0}));
  EXPECT_EQ(sampler.batch(0).own, 3);
}

TEST(Sampler, RefusesImpossibleOptions) {
  EXPECT_THROW(Sampler({.samples = 0}), Exception);
  EXPECT_THROW(Sampler({.samples = 5, .batch_size = 0}), Exception);
  EXPECT_THROW(Sampler({.samples = 5, .rank = 2, .world_size = 2}), Exception);
}

}  // namespace
}  // namespace gradwire

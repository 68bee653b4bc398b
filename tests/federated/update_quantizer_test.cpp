#include "gradwire/federated/update_quantizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/federated/computed_updates.h"
#include "gradwire/federated/metrics.h"
#include "gradwire/federated/quantizer_sequence.h"
#include "gradwire/federated/round.h"

namespace gradwire::federated {
namespace {

std::vector<float> normal_update(std::size_t size, double deviation, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> update(size);
  for (float& value : update) {
    const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
    value = static_cast<float>(deviation * radius * std::cos(6.283185307 * random.unit()));
  }
  return update;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

double squared_norm(const std::vector<float>& x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
}

TEST(UpdateQuantizer, GivesTheWeightedMeanBackIn32Bits) {
  const std::vector<std::int64_t> weights{1, 600, 1'000'000};
  const std::int64_t all = 1'000'601;
  for (const bool rotate : {false, true}) {
    for (const std::size_t size : {1, 31, 1024, 1500}) {
      const QuantizerOptions options{.rotate = rotate};
      const UpdateQuantizer quantizer(options, size, 4, 7);
      const int bits = sum_bits(32, all);
      ModularVector sum(quantizer.elements(), bits);
      std::vector<double> mean(size);
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const auto update = normal_update(size, 0.1, k);
        sum += quantizer.encode(update, weights[k], bits, k).integers;
        for (std::size_t i = 0; i < size; ++i)
          mean[i] += update[i] * static_cast<double>(weights[k]) / static_cast<double>(all);
      }
      const auto found = quantizer.mean(sum, all);
      for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found[i], mean[i], 2e-7);
    }
  }
}

TEST(UpdateQuantizer, SumsDoNotDependOnTheOrder) {
  const UpdateQuantizer quantizer({.bits = 8, .rotate = true}, 3000, 0.5, 1);
  ModularVector there(quantizer.elements(), 12), back = there;
  std::vector<ModularVector> all;
  for (std::uint64_t k = 0; k < 16; ++k)
    all.push_back(quantizer.encode(normal_update(3000, 0.1, k), 1, 12, k).integers);
  for (std::size_t k = 0; k < 16; ++k) there += all[k];
  for (std::size_t k = 16; k-- > 0;) back += all[k];
  EXPECT_EQ(there, back);
}

/// The mean over many roundings, rotations and masks is the update itself, within 4 deviations of
/// that mean.
TEST(UpdateQuantizer, IsUnbiased) {
  constexpr int kDraws = 4000;
  for (const QuantizerOptions options :
       {QuantizerOptions{.bits = 2}, QuantizerOptions{.bits = 3, .rotate = true},
        QuantizerOptions{.bits = 4, .rotate = true, .keep = 0.25}}) {
    const auto update = normal_update(64, 0.1, 1);
    std::vector<double> sum(64), squares(64);
    for (int i = 0; i < kDraws; ++i) {
      const auto seed = static_cast<std::uint64_t>(i);
      const UpdateQuantizer quantizer(options, 64, 1, seed);
      const auto one = quantizer.mean(quantizer.encode(update, 1, options.bits, seed).integers, 1);
      for (std::size_t k = 0; k < 64; ++k) sum[k] += one[k], squares[k] += one[k] * one[k];
    }
    for (std::size_t k = 0; k < 64; ++k) {
      const double mean = sum[k] / kDraws;
      const double variance = squares[k] / kDraws - mean * mean;
      EXPECT_NEAR(mean, update[k], 4.5 * std::sqrt(variance / kDraws) + 1e-6);
    }
  }
}

/// Stochastic rounding to levels at distance d adds at most d^2 / 4 to the variance of an element,
/// and d^2 / 6 on average over values between levels.
TEST(UpdateQuantizer, LosesAsMuchAsRoundingDoes) {
  constexpr std::size_t kSize = 200'000;
  const auto update = normal_update(kSize, 0.01, 3);
  const QuantizerOptions options{.bits = 8, .rotate = true};
  const double range = next_range(options, 1e-4);
  EXPECT_NEAR(range, 0.05, 1e-12);
  const UpdateQuantizer quantizer(options, kSize, range, 5);
  const auto encoded = quantizer.encode(update, 1, 8, 9);
  EXPECT_NEAR(encoded.mean_square, 1e-4, 2e-6);
  EXPECT_LT(encoded.clipped, 5);
  const double distance = range / 127;
  const double error = squared_error(quantizer.mean(encoded.integers, 1), update);
  EXPECT_NEAR(error / (kSize * distance * distance / 6), 1, 0.1);
  EXPECT_LT(error / squared_norm(update), 3e-4);
}

TEST(UpdateQuantizer, RotationSpreadsOutliers) {
  std::vector<float> update(4096);
  update[17] = 1;  // Everything in one element.
  const QuantizerOptions options{.bits = 8, .rotate = true};
  const double range = next_range(options, squared_norm(update) / 4096);
  const UpdateQuantizer quantizer(options, 4096, range, 5);
  const auto encoded = quantizer.encode(update, 1, 8, 9);
  EXPECT_EQ(encoded.clipped, 0);
  EXPECT_NEAR(quantizer.mean(encoded.integers, 1)[17], 1, 0.05);
}

TEST(UpdateQuantizer, RotationSpreadsATensorOfLargeElements) {
  constexpr std::size_t kSize = 50'000;
  auto update = normal_update(kSize, 0.001, 3);
  const auto large = normal_update(2000, 0.1, 4);
  std::ranges::copy(large, update.end() - 2000);
  const QuantizerOptions options{.bits = 8, .rotate = true};
  const double range = next_range(options, squared_norm(update) / kSize);
  const UpdateQuantizer quantizer(options, kSize, range, 5);
  EXPECT_LT(quantizer.encode(update, 1, 8, 9).clipped, 5);
}

TEST(UpdateQuantizer, CountsWhatItClips) {
  const std::vector<float> update{0.5F, -2, 1, 3, -0.1F};
  const UpdateQuantizer quantizer({.bits = 16}, 5, 1, 5);
  const auto encoded = quantizer.encode(update, 1, 16, 9);
  EXPECT_EQ(encoded.clipped, 2);
  const auto found = quantizer.mean(encoded.integers, 1);
  EXPECT_FLOAT_EQ(found[1], -1);
  EXPECT_FLOAT_EQ(found[3], 1);
}

/// The updates of a round may be much larger or smaller than the range that the first round has.
TEST(QuantizerSequence, FindsTheRangeOfUpdatesOfAnyMagnitude) {
  constexpr std::size_t kSize = 4096;
  const QuantizerOptions options{.bits = 8, .rotate = true};
  for (const float deviation : {1e-7F, 1e-4F, 0.1F, 75.0F, 1e4F, 1e6F}) {
    QuantizerSequence sequence(options, kSize, 7);
    const auto update = normal_update(kSize, deviation, 3);
    for (int round = 1; round <= 4; ++round) {
      const UpdateQuantizer quantizer = sequence.quantizer(round);
      const auto contribution = encode({.update = update}, {.round = round},
                                       {.bits = 32, .weight = 1}, {.quantizer = &quantizer});
      ASSERT_TRUE(contribution);
      sequence.add(metrics_of((*contribution)[1]));
    }
    EXPECT_EQ(sequence.bits(), 8);
    EXPECT_NEAR(sequence.quantizer(5).range() / deviation, 5, 0.5) << deviation;
  }
}

TEST(QuantizerSequence, KeepsTheRangeAfterUpdatesOfZeros) {
  QuantizerSequence sequence({.bits = 8}, 16, 7);
  sequence.add({.clients = 2});
  EXPECT_EQ(sequence.bits(), 24);
  sequence.add({.clients = 2, .mean_square = 2e-4});
  const double range = sequence.quantizer(2).range();
  EXPECT_NEAR(range, 0.2, 1e-9);
  sequence.add({.clients = 2});
  EXPECT_EQ(sequence.quantizer(3).range(), range);
}

TEST(UpdateQuantizer, UsesHalfOfFloat32For256ClientsOf8Bits) {
  constexpr std::size_t kSize = 199'210;
  const UpdateQuantizer plain({.bits = 8, .rotate = true}, kSize, 1, 1);
  EXPECT_EQ(sum_bits(8, 256), 16);
  const auto bytes = [](const UpdateQuantizer& one, int bits) {
    return static_cast<double>(ModularVector::packed_bytes(one.elements(), bits) +
                               8 * Metrics::kElements);
  };
  EXPECT_LE(bytes(plain, 16), 0.51 * 4 * kSize);
  const UpdateQuantizer masked({.bits = 8, .rotate = true, .keep = 0.25}, kSize, 1, 1);
  EXPECT_LE(bytes(masked, 16), 0.13 * 4 * kSize);
}

TEST(Metrics, AreAddedAsIntegers) {
  const Metrics one{.clients = 1,
                    .steps = 3,
                    .weighted_steps = 300,
                    .clipped = 2,
                    .mean_square = 1e-5,
                    .evaluated = 10,
                    .correct = 7,
                    .loss = 12.5,
                    .training_loss = 0.25};
  ModularVector sum = to_integers(one);
  sum += to_integers({.clients = 1, .evaluated = 10, .correct = 1, .loss = -0.5});
  const Metrics found = metrics_of(sum);
  EXPECT_EQ(found.clients, 2);
  EXPECT_EQ(found.steps, 3);
  EXPECT_EQ(found.weighted_steps, 300);
  EXPECT_NEAR(found.mean_square, 1e-5, 1e-11);
  EXPECT_EQ(found.accuracy(), 0.4);
  EXPECT_EQ(found.loss, 12);
  EXPECT_EQ(found.training_loss, 0.25);
}

TEST(Metrics, OfALossThatIsNotFiniteDoNotWrap) {
  ModularVector sum = to_integers({.loss = INFINITY});
  for (int i = 0; i < 100; ++i) sum += to_integers({.loss = NAN});
  EXPECT_GT(metrics_of(sum).loss, 1e6);
}

}  // namespace
}  // namespace gradwire::federated

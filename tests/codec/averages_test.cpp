#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/codec/catalogue.h"
#include "tests/codec/values.h"

/// Errors of single steps must not accumulate over many steps.
namespace gradwire::test {
namespace {

class Encoder {
 public:
  explicit Encoder(const std::string& spec) : codec_(value_or_throw(codec::make_codec(spec))) {}

  std::vector<float> pass(const std::vector<float>& values, std::uint64_t seed,
                          std::span<float> residual = {}) {
    std::vector<std::byte> bytes(codec_->encoded_bytes(values.size()));
    std::vector<float> decoded(values.size());
    codec_->encode(values, residual, seed, bytes);
    value_or_throw(codec_->decode(bytes, seed, decoded));
    return decoded;
  }

  const codec::Codec& codec() const { return *codec_; }

 private:
  std::unique_ptr<codec::Codec> codec_;
};

class Unbiased : public ::testing::TestWithParam<std::string> {};

TEST_P(Unbiased, IsRightOnAverageOverSeeds) {
  constexpr int kSeeds = 1500;
  for (std::size_t count : {31, 1000, 2048}) {
    Encoder encoder(GetParam());
    const auto values = make_values(Kind::gaussian, count, 4);
    std::vector<double> sum(count);
    double variance = 0;  // Variance of one decoded vector around the values.
    for (int seed = 0; seed < kSeeds; ++seed) {
      const auto decoded = encoder.pass(values, static_cast<std::uint64_t>(seed));
      for (std::size_t i = 0; i < count; ++i) {
        sum[i] += decoded[i];
        variance += std::pow(static_cast<double>(decoded[i]) - values[i], 2) / kSeeds;
      }
    }
    double error = 0;
    for (std::size_t i = 0; i < count; ++i) error += std::pow(sum[i] / kSeeds - values[i], 2);
    // The mean of independent draws has variance / kSeeds around their mean, within six standard
    // deviations of the sum of squares. A Hadamard transform is not quite a random rotation: for a
    // few values it leaves a bias, which the bound includes.
    const bool rotates = GetParam().starts_with("rotation");
    const double bias = rotates ? (count < 100 ? 0.01 : 0.0004) * square(values) : 0;
    const double spread = 1 + 6 * std::sqrt(2 / static_cast<double>(count));
    EXPECT_LE(error, spread * variance / kSeeds + bias) << count << " values";
    EXPECT_GT(variance, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Unbiased,
                         ::testing::Values("ternary", "qsgd:2", "qsgd:4", "qsgd:8", "rotation:1",
                                           "rotation:2", "rotation:3", "rotation:4"));

TEST(RandomMask, PicksEveryValueEquallyOften) {
  constexpr int kSeeds = 4000;
  constexpr std::size_t kCount = 1003;
  Encoder encoder("random_mask:0.1");
  const std::vector<float> ones(kCount, 1.0F);
  std::vector<int> picked(kCount);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto decoded = encoder.pass(ones, static_cast<std::uint64_t>(seed));
    EXPECT_EQ(std::ranges::count(decoded, 1.0F), 100);
    for (std::size_t i = 0; i < kCount; ++i) picked[i] += decoded[i] == 1.0F ? 1 : 0;
  }
  // Runs have 10 or 11 values: 1/10 or 1/11, within six standard deviations of 18 and 19.
  EXPECT_GT(std::ranges::min(picked), kSeeds / 11 - 110);
  EXPECT_LT(std::ranges::max(picked), kSeeds / 10 + 115);
}

TEST(StochasticRounding, DiffersBetweenRanksOfOneSeed) {
  // Two ranks with slightly different values: if they rounded alike, the errors of their sum would
  // be twice those of one.
  for (const char* spec : {"ternary", "qsgd:4"}) {
    Encoder encoder(spec);
    auto values = make_values(Kind::gaussian, 10240, 1);
    const auto first = encoder.pass(values, 1);
    auto near = values;
    for (float& value : near) value *= 1.001F;
    const auto second = encoder.pass(near, 1);
    double one = 0, product = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      one += std::pow(static_cast<double>(first[i]) - values[i], 2);
      product += (static_cast<double>(first[i]) - values[i]) * (second[i] - near[i]);
    }
    EXPECT_LT(std::abs(product), 0.1 * one) << spec;
  }
}

class Feedback : public ::testing::TestWithParam<std::string> {};

TEST_P(Feedback, LosesNothingInTheLongRun) {
  constexpr std::size_t kCount = 1500;
  constexpr std::size_t kSteps = 6000;
  Encoder encoder(GetParam());
  ASSERT_TRUE(encoder.codec().wants_feedback());
  const auto mean = make_values(Kind::gaussian, kCount, 1);
  std::vector<std::vector<float>> noise;
  for (std::uint64_t i = 0; i < 17; ++i) {
    noise.push_back(make_values(Kind::gaussian, kCount, i + 2));
  }
  std::vector<float> residual(kCount);
  std::vector<double> values_sum(kCount), decoded_sum(kCount);
  double half = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    auto values = noise[step % noise.size()];
    for (std::size_t i = 0; i < kCount; ++i) values[i] += mean[i];
    const auto decoded = encoder.pass(values, step, residual);
    for (std::size_t i = 0; i < kCount; ++i) {
      values_sum[i] += values[i];
      decoded_sum[i] += decoded[i];
    }
    if (step == kSteps / 2) half = square(residual);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(decoded_sum[i] + residual[i], values_sum[i], 0.2);
  }
  // The residual stops growing, so that its share of the sum goes to zero.
  EXPECT_LT(square(residual), 1.3 * half);
}

INSTANTIATE_TEST_SUITE_P(Codecs, Feedback,
                         ::testing::Values("int8", "int4", "two_bit", "one_bit", "rotation:1",
                                           "rotation:2", "rotation:4", "top_k:0.1", "top_k:0.01",
                                           "top_k:0.002", "random_mask:0.1", "random_mask:0.005"));

}  // namespace
}  // namespace gradwire::test

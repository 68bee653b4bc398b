#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/codec/catalogue.h"
#include "tests/codec/formulas.h"
#include "tests/codec/values.h"

/// Every codec on every kind and number of values.
namespace gradwire::test {
namespace {

constexpr std::uint64_t kSeed = 7;

/// Memory between two guards.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t size, T fill = {}) : all_(size + 2 * kGuard, kMark), size_(size) {
    std::fill(span().begin(), span().end(), fill);
  }
  std::span<T> span() { return {all_.data() + kGuard, size_}; }
  bool intact() const {
    const auto marked = [&](std::size_t at) {
      return std::memcmp(&all_[at], &kMark, sizeof(T)) == 0;
    };
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (!marked(i) || !marked(kGuard + size_ + i)) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 67;
  static constexpr T kMark = static_cast<T>(0x5A);
  std::vector<T> all_;
  std::size_t size_;
};

class EveryCodec : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<codec::Codec> codec_ = value_or_throw(codec::make_codec(GetParam()));

  std::vector<std::byte> encoded(const std::vector<float>& values, std::uint64_t seed = kSeed) {
    std::vector<std::byte> bytes(codec_->encoded_bytes(values.size()));
    codec_->encode(values, {}, seed, bytes);
    return bytes;
  }

  std::vector<float> decoded(const std::vector<std::byte>& bytes, std::size_t count) {
    std::vector<float> values(count);
    value_or_throw(codec_->decode(bytes, kSeed, values));
    return values;
  }

  /// Calls check(values, what) for all combinations.
  template <class Check>
  void for_all_values(Check check) {
    for (Kind kind : value_kinds()) {
      for (std::size_t count : value_counts()) {
        SCOPED_TRACE(name_of(kind) + ", " + std::to_string(count) + " values");
        check(kind, make_values(kind, count, count + 1));
        if (HasFatalFailure()) return;
      }
    }
  }
};

void expect_within_formulas(const std::string& spec, const std::vector<float>& values,
                            const std::vector<float>& decoded) {
  const std::size_t size = block_size_of(spec);
  for (std::size_t at = 0; at < values.size(); at += size) {
    const std::size_t n = std::min(size, values.size() - at);
    const std::span<const float> block{values.data() + at, n};
    double square = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double error = static_cast<double>(decoded[at + i]) - block[i];
      square += error * error;
      if (at > 0 && i % 16 != 0) continue;  // The formulas of single values are slow.
      const auto allowed = allowed_error(spec, block, block[i]);
      if (allowed) {
        ASSERT_LE(std::abs(error), *allowed) << "value " << at + i << ", " << block[i];
      }
    }
    const auto allowed = allowed_square(spec, block);
    if (allowed) {
      ASSERT_LE(square, *allowed) << "block at " << at;
    }
  }
}

TEST_P(EveryCodec, LosesNoMoreThanItsFormulaSays) {
  for_all_values([&](Kind kind, const std::vector<float>& values) {
    if (!has_only_finite(kind)) return;
    const auto back = decoded(encoded(values), values.size());
    for (float value : back) ASSERT_TRUE(std::isfinite(value));
    expect_within_formulas(GetParam(), values, back);
  });
}

TEST_P(EveryCodec, LeavesZerosAlone) {
  for (std::size_t count : value_counts()) {
    std::vector<float> values(count);
    if (count > 1) values[1] = -0.0F;
    for (float value : decoded(encoded(values), count)) ASSERT_EQ(value, 0);
  }
}

TEST_P(EveryCodec, NeverMakesAFiniteValueOfOneThatIsNot) {
  for_all_values([&](Kind, const std::vector<float>& values) {
    const auto back = decoded(encoded(values), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        ASSERT_FALSE(std::isfinite(back[i])) << "value " << i;
      }
    }
  });
}

TEST_P(EveryCodec, CarriesWhatItLoses) {
  for_all_values([&](Kind kind, const std::vector<float>& values) {
    if (!has_only_finite(kind) || kind == Kind::huge) return;
    auto residual = make_values(kind, values.size(), 99);
    const auto before = residual;
    std::vector<std::byte> bytes(codec_->encoded_bytes(values.size()));
    codec_->encode(values, residual, kSeed, bytes);
    const auto back = decoded(bytes, values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double sum = static_cast<double>(values[i]) + before[i];
      const double kept = static_cast<double>(back[i]) + residual[i];
      ASSERT_NEAR(kept, sum, 0x1p-22 * (std::abs(sum) + std::abs(back[i])) + 1e-45) << i;
    }
  });
}

TEST_P(EveryCodec, CarriesNothingThatIsNotFinite) {
  for_all_values([&](Kind kind, const std::vector<float>& values) {
    if (has_only_finite(kind) && kind != Kind::huge) return;
    std::vector<std::byte> bytes(codec_->encoded_bytes(values.size()));
    std::vector<float> residual(values.size());
    for (int step = 0; step < 3; ++step) codec_->encode(values, residual, kSeed, bytes);
    for (float lost : residual) ASSERT_TRUE(std::isfinite(lost));
    // The next step is unaffected.
    const auto good = make_values(Kind::gaussian, values.size(), 3);
    codec_->encode(good, residual, kSeed, bytes);
    if (kind == Kind::huge) return;
    for (float value : decoded(bytes, values.size())) ASSERT_TRUE(std::isfinite(value));
  });
}

TEST_P(EveryCodec, EncodesWithoutCarryAsWithZeros) {
  for_all_values([&](Kind, const std::vector<float>& values) {
    std::vector<float> residual(values.size());
    std::vector<std::byte> bytes(codec_->encoded_bytes(values.size()));
    codec_->encode(values, residual, kSeed, bytes);
    ASSERT_EQ(bytes, encoded(values));
  });
}

TEST_P(EveryCodec, AddsWhatItDecodes) {
  for_all_values([&](Kind, const std::vector<float>& values) {
    const auto bytes = encoded(values);
    const auto back = decoded(bytes, values.size());
    auto sum = make_values(Kind::gaussian, values.size(), 5);
    auto expected = sum;
    for (std::size_t i = 0; i < sum.size(); ++i) expected[i] += back[i];
    value_or_throw(codec_->decode_add(bytes, kSeed, sum));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(sum[i]));
      }
      if (!std::isnan(expected[i])) {
        ASSERT_EQ(sum[i], expected[i]);
      }
    }
  });
}

TEST_P(EveryCodec, IsAFunctionOfValuesAndSeed) {
  for (std::size_t count : value_counts()) {
    const auto values = make_values(Kind::gaussian, count, count);
    // From another address, and after other values.
    std::vector<float> moved(count + 1);
    std::ranges::copy(values, moved.begin() + 1);
    std::vector<std::byte> bytes(codec_->encoded_bytes(count) + 3);
    const Bytes unaligned{bytes.data() + 3, bytes.size() - 3};
    codec_->encode(std::span<const float>(moved).subspan(1), {}, kSeed, unaligned);
    ASSERT_TRUE(std::ranges::equal(unaligned, encoded(values)));
  }
}

TEST_P(EveryCodec, WritesWhereItMay) {
  for_all_values([&](Kind, const std::vector<float>& values) {
    Guarded<std::byte> bytes(codec_->encoded_bytes(values.size()));
    Guarded<float> residual(values.size()), back(values.size());
    codec_->encode(values, residual.span(), kSeed, bytes.span());
    value_or_throw(codec_->decode(bytes.span(), kSeed, back.span()));
    value_or_throw(codec_->decode_add(bytes.span(), kSeed, back.span()));
    ASSERT_TRUE(bytes.intact());
    ASSERT_TRUE(residual.intact());
    ASSERT_TRUE(back.intact());
  });
}

TEST_P(EveryCodec, WritesEveryByte) {
  for (std::size_t count : value_counts()) {
    const auto values = make_values(Kind::gaussian, count, count);
    Guarded<std::byte> one(codec_->encoded_bytes(count), std::byte{0});
    Guarded<std::byte> other(codec_->encoded_bytes(count), std::byte{255});
    codec_->encode(values, {}, kSeed, one.span());
    codec_->encode(values, {}, kSeed, other.span());
    ASSERT_TRUE(std::ranges::equal(one.span(), other.span())) << count << " values";
  }
}

TEST_P(EveryCodec, RefusesBytesOfAnotherSize) {
  for (std::size_t count : value_counts()) {
    auto bytes = encoded(make_values(Kind::gaussian, count, 1));
    std::vector<float> back(count);
    bytes.push_back(std::byte{1});
    EXPECT_EQ(codec_->decode(bytes, kSeed, back).error().kind, ErrorKind::corrupted);
    if (count == 0) continue;
    bytes.resize(bytes.size() - 2);
    EXPECT_EQ(codec_->decode(bytes, kSeed, back).error().kind, ErrorKind::corrupted);
    EXPECT_EQ(codec_->decode_add(bytes, kSeed, back).error().kind, ErrorKind::corrupted);
  }
}

TEST_P(EveryCodec, SurvivesAnyBytes) {
  Random random(11);
  for (std::size_t count : {1, 3, 8, 31, 257, 1000, 4099, 10000}) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      // In a vector of exactly that size, so that sanitizers detect reads beyond it.
      std::vector<std::byte> bytes(codec_->encoded_bytes(count));
      if (attempt % 2 == 0) codec_->encode(make_values(Kind::heavy, count, 2), {}, kSeed, bytes);
      for (std::byte& byte : bytes) {
        if (attempt % 2 == 1 || random.one_in(50)) byte = static_cast<std::byte>(random.next());
      }
      Guarded<float> back(count);
      const Status status = codec_->decode(bytes, random.next(), back.span());
      if (!status) {
        EXPECT_EQ(status.error().kind, ErrorKind::corrupted);
      }
      EXPECT_EQ(codec_->decode_add(bytes, random.next(), back.span()).has_value(),
                status.has_value());
      ASSERT_TRUE(back.intact());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec, ::testing::ValuesIn(codec_specs()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace gradwire::test

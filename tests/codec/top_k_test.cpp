#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/codec/selection.h"
#include "tests/codec/values.h"

namespace gradwire::test {
namespace {

std::vector<std::uint16_t> by_sorting(const std::vector<float>& x, std::size_t k) {
  std::vector<std::uint16_t> indexes(x.size());
  std::iota(indexes.begin(), indexes.end(), std::uint16_t{0});
  std::ranges::stable_sort(indexes,
                           [&](auto a, auto b) { return std::abs(x[a]) > std::abs(x[b]); });
  indexes.resize(k);
  std::ranges::sort(indexes);
  return indexes;
}

TEST(Selection, FindsWhatSortingFinds) {
  Random random(1);
  for (int attempt = 0; attempt < 3000; ++attempt) {
    const std::size_t n = 1 + random.below(random.one_in(10) ? codec::kMaxSelection : 300);
    const std::size_t k = 1 + random.below(random.one_in(2) ? n : 1 + n / 20);
    std::vector<float> x =
        make_values(random.one_in(2) ? Kind::gaussian : Kind::heavy, n, random.next());
    const std::uint64_t distinct = 1 + random.below(20);  // Few distinct values, hence ties.
    if (random.one_in(2)) {
      for (float& value : x) value = static_cast<float>(random.below(distinct)) - 3;
    }
    std::vector<std::uint16_t> found(k);
    ASSERT_TRUE(codec::select_largest(x.data(), n, k, found.data()));
    ASSERT_EQ(found, by_sorting(x, k)) << n << " values, " << k << " of them";
  }
}

TEST(Selection, SelectsNothingWhereOneIsNotFinite) {
  Random random(2);
  for (const float strange : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (int i = 0; i < 200; ++i) {
      const std::size_t n = 1 + random.below(codec::kMaxSelection);
      std::vector<float> x = make_values(Kind::gaussian, n, random.next());
      x[random.below(n)] = strange;
      std::vector<std::uint16_t> found(n);
      EXPECT_FALSE(codec::select_largest(x.data(), n, 1 + random.below(n), found.data()));
    }
  }
}

TEST(TopK, KeepsTheLargestOfEachBlock) {
  const auto codec = value_or_throw(codec::make_codec("top_k:0.01"));
  const auto values = make_values(Kind::heavy, 8192, 1);
  std::vector<std::byte> bytes(codec->encoded_bytes(values.size()));
  EXPECT_EQ(bytes.size(), 2u * 41 * 4);
  codec->encode(values, {}, 0, bytes);
  std::vector<float> decoded(values.size());
  value_or_throw(codec->decode(bytes, 0, decoded));
  for (std::size_t at = 0; at < values.size(); at += 4096) {
    const std::vector<float> block(values.begin() + static_cast<std::ptrdiff_t>(at),
                                   values.begin() + static_cast<std::ptrdiff_t>(at) + 4096);
    const auto kept = by_sorting(block, 41);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const bool is_kept = std::ranges::binary_search(kept, i);
      ASSERT_NEAR(decoded[at + i], is_kept ? block[i] : 0, std::abs(block[i]) * 0x1p-8);
      ASSERT_EQ(decoded[at + i] != 0, is_kept);
    }
  }
}

/// Checks the mean of contributions of `ranks` ranks, all of whose values must reach the others.
void expect_mean_loses_nothing(const codec::Codec& codec, int ranks, std::size_t count) {
  std::vector<float> mean(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = make_values(Kind::gaussian, count, static_cast<std::uint64_t>(rank) + 1);
    std::vector<std::byte> bytes(codec.encoded_bytes(count));
    codec.encode(values, {}, 0, bytes);
    value_or_throw(codec.decode_add(bytes, 0, mean));
  }
  for (float& value : mean) value /= static_cast<float>(ranks);
  const auto for_mean = codec.for_mean(ranks);
  ASSERT_TRUE(for_mean);
  const std::size_t size = for_mean->encoded_bytes(count);
  EXPECT_LE(size, 2 * count) << "dense is smaller";
  EXPECT_LE(size, static_cast<std::size_t>(ranks) * codec.encoded_bytes(count));
  std::vector<std::byte> bytes(size);
  for_mean->encode(mean, {}, 0, bytes);
  std::vector<float> decoded(count);
  value_or_throw(for_mean->decode(bytes, 0, decoded));
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_NEAR(decoded[i], mean[i], std::abs(mean[i]) * 0x1p-8);
  }
}

TEST(TopK, TheMeanOfSparseValuesIsAsDenseAsItMustBe) {
  for (const char* spec : {"top_k:0.001", "top_k:0.01", "top_k:0.1", "top_k:0.5"}) {
    const auto codec = value_or_throw(codec::make_codec(spec));
    for (int ranks : {1, 2, 3, 8, 40}) {
      for (std::size_t count : {1u, 5u, 100u, 4096u, 10001u}) {
        SCOPED_TRACE(std::string(spec) + " " + std::to_string(ranks) + " " + std::to_string(count));
        expect_mean_loses_nothing(*codec, ranks, count);
      }
    }
  }
}

TEST(TopK, RefusesIndexesThatAreNotAscending) {
  const auto codec = value_or_throw(codec::make_codec("top_k:0.01"));
  const auto values = make_values(Kind::gaussian, 4096, 1);
  std::vector<std::byte> bytes(codec->encoded_bytes(values.size()));
  codec->encode(values, {}, 0, bytes);
  std::vector<float> decoded(values.size());
  auto twice = bytes;
  twice[2] = twice[0];
  twice[3] = twice[1];
  EXPECT_EQ(codec->decode(twice, 0, decoded).error().kind, ErrorKind::corrupted);
  auto beyond = bytes;
  beyond[2 * 40 + 1] = std::byte{0x10};  // The last index: 4096 and more.
  EXPECT_EQ(codec->decode(beyond, 0, decoded).error().kind, ErrorKind::corrupted);
}

}  // namespace
}  // namespace gradwire::test

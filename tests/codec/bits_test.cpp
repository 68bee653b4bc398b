#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/random.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire::test {
namespace {

struct Expected {
  const char* spec;
  std::uint32_t encoded, decoded;
};

/// Checksums of a codec's output for fixed values. They must be identical on every processor and
/// instruction set; a change of the encoding changes them.
class Bits : public ::testing::TestWithParam<Expected> {};

/// Computed from integers, because logarithms differ between libraries: magnitudes from 2^-20 to
/// 2^11.
std::vector<float> fixed_values(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto number = static_cast<float>(random.between(-2000, 2000));
    value = number / static_cast<float>(std::uint32_t{1} << random.below(20));
  }
  return values;
}

TEST_P(Bits, AreTheSameOnEveryProcessor) {
  constexpr std::size_t kCount = 3 * 4096 + 777;
  const auto codec = value_or_throw(codec::make_codec(GetParam().spec));
  const auto values = fixed_values(kCount, 1);
  std::vector<float> residual(kCount), decoded(kCount);
  std::vector<std::byte> bytes(codec->encoded_bytes(kCount));
  std::uint32_t encoded_sum = 0, decoded_sum = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    codec->encode(values, residual, seed, bytes);
    value_or_throw(codec->decode(bytes, seed, decoded));
    encoded_sum = crc32c(bytes, encoded_sum);
    decoded_sum = crc32c(std::as_bytes(std::span(decoded)), decoded_sum);
  }
  EXPECT_EQ(encoded_sum, GetParam().encoded) << GetParam().spec << std::hex << " 0x" << encoded_sum;
  EXPECT_EQ(decoded_sum, GetParam().decoded) << GetParam().spec << std::hex << " 0x" << decoded_sum;
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, Bits,
    ::testing::Values(
        Expected{"bf16", 0xb4e518c2, 0xec1294c3}, Expected{"fp16", 0x32485aee, 0xd72bd883},
        Expected{"int8", 0xb5ba2bf0, 0x88c9778d}, Expected{"int4", 0xe5484d3f, 0x1e2653ea},
        Expected{"qsgd:2", 0xc97de2e6, 0x37a8875e}, Expected{"qsgd:4", 0xcecdc6c6, 0xfa350b17},
        Expected{"qsgd:8", 0xdf5af24a, 0xea356ab6}, Expected{"rotation:1", 0xf009848c, 0x448ddbb3},
        Expected{"rotation:2", 0x25108331, 0x4e0cc5a6},
        Expected{"rotation:3", 0xf014366f, 0xace98cdc},
        Expected{"rotation:4", 0x5d96fa5c, 0xa7ad0bbc}, Expected{"two_bit", 0x7bca26de, 0x10b2df9e},
        Expected{"ternary", 0x7052c7db, 0x7e3f1546}, Expected{"one_bit", 0xe47b2733, 0xe819f1fc},
        Expected{"top_k:0.01", 0xe545d172, 0xe7d2a1bc},
        Expected{"top_k:0.1", 0x55845731, 0x9d593d8d},
        Expected{"random_mask:0.1", 0x3f1fc0a3, 0x52dd5c2b}));

}  // namespace
}  // namespace gradwire::test

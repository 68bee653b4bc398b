#include "gradwire/engine/operations/reduction.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace gradwire::engine {
namespace {

template <class T>
std::vector<T> combined(std::vector<T> left, const std::vector<T>& right, DataType type,
                        ReduceOp op) {
  auto* l = reinterpret_cast<std::byte*>(left.data());
  combine(l, l, reinterpret_cast<const std::byte*>(right.data()), left.size(), type, op);
  return left;
}

TEST(Reduction, NotANumberWinsOverEverything) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : all_reduce_ops()) {
    const auto result = combined<float>({nan, 1, nan}, {1, nan, nan}, DataType::float32, op);
    for (const float r : result) EXPECT_TRUE(std::isnan(r)) << name_of(op);
  }
}

TEST(Reduction, NotANumberAndInfinitySurviveInHalfPrecision) {
  // 0x7F81 is a NaN that naive rounding up would turn into a value next to infinity; 0x7F80 is
  // infinity.
  const auto bf16 = combined<std::uint16_t>({0x7F81, 0x7F80, 0xFF80}, {0x3F80, 0x3F80, 0x3F80},
                                            DataType::bfloat16, ReduceOp::sum);
  EXPECT_GT(bf16[0] & 0x7FFF, 0x7F80);
  EXPECT_EQ(bf16[1], 0x7F80);
  EXPECT_EQ(bf16[2], 0xFF80);
}

TEST(Reduction, BFloat16RoundsToNearestEven) {
  // 1 + 2^-8 is half way between 1 and the next bfloat16 and rounds to even: 1. 1 + 3 * 2^-8 rounds
  // up.
  EXPECT_EQ(combined<std::uint16_t>({0x3F80}, {0x3B80}, DataType::bfloat16, ReduceOp::sum)[0],
            0x3F80);
  EXPECT_EQ(combined<std::uint16_t>({0x3F81}, {0x3B80}, DataType::bfloat16, ReduceOp::sum)[0],
            0x3F82);
}

TEST(Reduction, IntegersWrapAround) {
  EXPECT_EQ(combined<std::int32_t>({std::numeric_limits<std::int32_t>::max()}, {1}, DataType::int32,
                                   ReduceOp::sum)[0],
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(combined<std::uint8_t>({200}, {100}, DataType::uint8, ReduceOp::sum)[0], 44);
}

TEST(Reduction, ShortIntegersKnowTheirSign) {
  EXPECT_EQ(combined<std::int8_t>({-3}, {2}, DataType::int8, ReduceOp::max)[0], 2);
  EXPECT_EQ(combined<std::int16_t>({-300}, {200}, DataType::int16, ReduceOp::min)[0], -300);
  EXPECT_EQ(combined<std::int16_t>({-1}, {-1}, DataType::int16, ReduceOp::product)[0], 1);
  EXPECT_EQ(combined<std::int8_t>({100}, {100}, DataType::int8, ReduceOp::sum)[0], -56);
}

TEST(Reduction, BitsOfIntegers) {
  EXPECT_EQ(combined<std::uint8_t>({12}, {10}, DataType::uint8, ReduceOp::bit_and)[0], 8);
  EXPECT_EQ(combined<std::int32_t>({12}, {10}, DataType::int32, ReduceOp::bit_or)[0], 14);
  EXPECT_EQ(combined<std::int64_t>({12}, {10}, DataType::int64, ReduceOp::bit_xor)[0], 6);
  EXPECT_TRUE(combines(DataType::int16, ReduceOp::bit_xor));
  EXPECT_FALSE(combines(DataType::float16, ReduceOp::bit_xor));
  EXPECT_TRUE(combines(DataType::float16, ReduceOp::product));
}

TEST(Reduction, AnyAddressAndAnyCountWillDo) {
  std::vector<std::byte> memory(4096);
  for (std::size_t offset = 0; offset < 8; ++offset) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<float> left(count, 1.5f), expected(count, 4.0f), result(count);
      std::vector<float> right(count, 2.5f);
      std::byte* odd = memory.data() + 1 + offset;
      if (count > 0) std::memcpy(odd, right.data(), count * 4);
      combine(reinterpret_cast<std::byte*>(result.data()),
              reinterpret_cast<std::byte*>(left.data()), odd, count, DataType::float32,
              ReduceOp::sum);
      ASSERT_EQ(result, expected);
    }
  }
}

TEST(Reduction, MeanDividesOnceAndTruncatesIntegers) {
  std::vector<std::int64_t> ints{7, -7, 0};
  finish_reduction(reinterpret_cast<std::byte*>(ints.data()), 3, DataType::int64, ReduceOp::mean,
                   2);
  EXPECT_EQ(ints, (std::vector<std::int64_t>{3, -3, 0}));
  std::vector<float> floats{1, 2};
  finish_reduction(reinterpret_cast<std::byte*>(floats.data()), 2, DataType::float32,
                   ReduceOp::mean, 3);
  EXPECT_EQ(floats, (std::vector<float>{1.0f / 3, 2.0f / 3}));
  finish_reduction(reinterpret_cast<std::byte*>(floats.data()), 2, DataType::float32, ReduceOp::sum,
                   3);
  EXPECT_EQ(floats[0], 1.0f / 3);
}

TEST(Reduction, MoreRanksThanASmallIntegerHolds) {
  std::vector<std::uint8_t> bytes{200};
  finish_reduction(reinterpret_cast<std::byte*>(bytes.data()), 1, DataType::uint8, ReduceOp::mean,
                   256);
  EXPECT_EQ(bytes[0], 0);
}

}  // namespace
}  // namespace gradwire::engine

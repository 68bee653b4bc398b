#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "gradwire/codec/float16.h"

namespace gradwire::test {
namespace {

double relative_error(float value) {
  return std::abs(static_cast<double>(codec::from_bf16(codec::to_bf16(value))) - value) / value;
}

TEST(Bf16, LosesTwoToTheMinusEightOfAValueAtMost) {
  // Just above a power of two, where half a unit in the last place is the largest part of the
  // value.
  EXPECT_DOUBLE_EQ(relative_error(1 + 0x1p-8F), 1 / 257.0);
  EXPECT_GT(relative_error(std::numeric_limits<float>::max()), 0.999 * 0x1p-8);
  double max = 0;
  for (float value = 1; value < 2; value += 0x1p-16F) max = std::max(max, relative_error(value));
  EXPECT_DOUBLE_EQ(max, 1 / 257.0);
  EXPECT_LE(relative_error(std::numeric_limits<float>::max()), 0x1p-8);
}

}  // namespace
}  // namespace gradwire::test

#include <array>
#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

#include "gradwire/base/element.h"

namespace gradwire {
namespace {

TEST(ElementValue, SmallIntegersComeBackFromEveryType) {
  for (const DataType type : all_data_types()) {
    for (int value = 0; value <= 127; ++value) {
      std::array<std::byte, 9> memory{};
      store_element(memory.data() + 1, type, value);
      EXPECT_EQ(load_element(memory.data() + 1, type), value) << name_of(type);
    }
  }
}

TEST(ElementValue, BFloat16RoundsToNearestEven) {
  const auto bits_of = [](double value) {
    std::array<std::byte, 2> memory{};
    store_element(memory.data(), DataType::bfloat16, value);
    std::uint16_t bits;
    std::memcpy(&bits, memory.data(), sizeof bits);
    return bits;
  };
  EXPECT_EQ(bits_of(1.0), 0x3F80);
  EXPECT_EQ(bits_of(1.0 + 0x1p-8), 0x3F80);      // Half way: to even, down.
  EXPECT_EQ(bits_of(1.0 + 3 * 0x1p-8), 0x3F82);  // Half way: to even, up.
  EXPECT_EQ(bits_of(1.0 + 0x1.8p-8), 0x3F81);
}

}  // namespace
}  // namespace gradwire

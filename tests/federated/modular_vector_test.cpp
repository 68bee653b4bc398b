#include "gradwire/federated/modular_vector.h"

#include <gtest/gtest.h>

#include "gradwire/base/random.h"

namespace gradwire::federated {
namespace {

ModularVector random_vector(std::size_t size, int bits, std::uint64_t seed) {
  Random random(seed);
  ModularVector vector(size, bits);
  for (std::size_t i = 0; i < size; ++i) vector.set(i, random.next());
  return vector;
}

TEST(ModularVector, AddsAndSubtractsModuloItsBits) {
  for (const int bits : {1, 7, 16, 17, 32, 33, 63, 64}) {
    const ModularVector a = random_vector(100, bits, 1), b = random_vector(100, bits, 2);
    ModularVector sum = a;
    sum += b;
    const std::uint64_t modulus = bits == 64 ? 0 : std::uint64_t{1} << bits;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const std::uint64_t expected = modulus == 0 ? a[i] + b[i] : (a[i] + b[i]) % modulus;
      EXPECT_EQ(sum[i], expected) << bits << " bits, element " << i;
    }
    sum -= b;
    EXPECT_EQ(sum, a) << bits << " bits";
  }
}

TEST(ModularVector, SurvivesPacking) {
  for (int bits = 1; bits <= 64; ++bits) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{37}}) {
      const ModularVector vector = random_vector(size, bits, static_cast<std::uint64_t>(bits));
      std::vector<std::byte> message(3);
      vector.append_packed(message);
      ASSERT_EQ(message.size(), 3 + (size * static_cast<std::size_t>(bits) + 7) / 8);
      const auto read = ModularVector::unpack(ConstBytes(message).subspan(3), size, bits);
      ASSERT_TRUE(read.has_value());
      EXPECT_EQ(*read, vector) << bits << " bits, " << size << " elements";
    }
  }
}

TEST(ModularVector, IsNotPackedWithWhatSumsLeaveAboveItsBits) {
  ModularVector sum = random_vector(9, 5, 1);
  for (int i = 0; i < 40; ++i) sum += random_vector(9, 5, static_cast<std::uint64_t>(i));
  std::vector<std::byte> message;
  sum.append_packed(message);
  EXPECT_EQ(ModularVector::unpack(message, 9, 5).value(), sum);
}

TEST(ModularVector, RefusesAnotherSize) {
  const std::vector<std::byte> message(10);
  EXPECT_TRUE(ModularVector::unpack(message, 5, 16).has_value());
  EXPECT_FALSE(ModularVector::unpack(message, 6, 16).has_value());
  EXPECT_FALSE(ModularVector::unpack(message, 4, 16).has_value());
}

TEST(ModularVector, ReadsSignedElements) {
  ModularVector vector(3, 9);
  vector.set(0, static_cast<std::uint64_t>(-3));
  vector.set(1, 255);
  vector.set(2, 256);
  EXPECT_EQ(vector.signed_at(0), -3);
  EXPECT_EQ(vector.signed_at(1), 255);
  EXPECT_EQ(vector.signed_at(2), -256);
}

TEST(ModularVector, CountsTheBitsOfASum) {
  EXPECT_EQ(bits_for(0), 0);
  EXPECT_EQ(bits_for(1), 1);
  EXPECT_EQ(bits_for(255), 8);
  EXPECT_EQ(bits_for(256), 9);
}

}  // namespace
}  // namespace gradwire::federated

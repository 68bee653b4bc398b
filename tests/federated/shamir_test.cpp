#include "gradwire/federated/secure/shamir.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "tests/federated/secure_trial.h"

namespace gradwire::federated {
namespace {

Secret filled(unsigned char byte) {
  Secret secret;
  std::ranges::fill(secret.bytes(), std::byte{byte});
  return secret;
}

std::vector<int> points_up_to(int count) {
  std::vector<int> points(static_cast<std::size_t>(count));
  std::iota(points.begin(), points.end(), 1);
  return points;
}

Share share_of(std::initializer_list<int> last_bytes) {
  Share share{};
  std::ranges::transform(last_bytes, share.end() - static_cast<std::ptrdiff_t>(last_bytes.size()),
                         [](int byte) { return static_cast<std::byte>(byte); });
  return share;
}

TEST(Shamir, AnySharesAsManyAsTheThresholdGiveTheSecretBack) {
  SecretSharing sharing;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto bytes = test::seeded_bytes(seed);
    const int count = 1 + static_cast<int>(random.below(12));
    const auto threshold = 1 + random.below(static_cast<std::uint64_t>(count));
    Secret secret = Secret::draw(bytes).value();
    if (random.one_in(4)) secret = filled(random.one_in(2) ? 0 : 255);
    std::vector<int> points;
    for (int i = 0, at = 0; i < count; ++i)
      points.push_back(at += 1 + static_cast<int>(random.below(5'000)));
    const auto shares = sharing.split(secret, static_cast<int>(threshold), points, bytes).value();
    std::vector<int> some_points;
    std::vector<Share> some;
    for (const int chosen : test::random_part(points_up_to(count), threshold, seed)) {
      some_points.push_back(points[static_cast<std::size_t>(chosen) - 1]);
      some.push_back(shares[static_cast<std::size_t>(chosen) - 1]);
    }
    EXPECT_EQ(sharing.join(some_points, some).value(), secret) << "seed " << seed;
  }
}

TEST(Shamir, HasTheValuesOfAPolynomial) {
  // 3 + 5 x modulo 2^256 + 297, at 1 and at 10,000.
  SecretSharing sharing;
  Secret secret;
  secret.bytes()[31] = std::byte{3};
  const RandomBytes five = [](Bytes bytes) -> Status {
    std::ranges::fill(bytes, std::byte{0});
    bytes.back() = std::byte{5};
    return {};
  };
  const std::vector<int> points{1, 10'000};
  const auto shares = sharing.split(secret, 2, points, five).value();
  EXPECT_EQ(shares[0], share_of({8}));
  EXPECT_EQ(shares[1], share_of({0, 195, 83}));  // 50,003.
  EXPECT_EQ(sharing.join(points, shares).value(), secret);
}

/// With one share less than the threshold, each value of the last one gives another secret: every
/// secret is as likely as before.
TEST(Shamir, OneShareLessDecidesNothing) {
  SecretSharing sharing;
  const std::vector<int> points = points_up_to(4);
  auto shares = sharing.split(filled(9), 4, points, test::seeded_bytes(3)).value();
  std::set<std::vector<std::byte>> secrets;
  for (int value = 0; value < 256; ++value) {
    shares[3] = share_of({value, 77});
    const Secret secret = sharing.join(points, shares).value();
    secrets.insert({secret.bytes().begin(), secret.bytes().end()});
  }
  EXPECT_EQ(secrets.size(), 256);
}

/// The distribution of a byte of each of threshold - 1 shares, whatever the secret.
TEST(Shamir, SharesBelowTheThresholdAreUniform) {
  SecretSharing sharing;
  const auto bytes = test::seeded_bytes(5);
  for (const Secret& secret : {filled(0), filled(255)}) {
    std::array<std::array<double, 256>, 2> counts{};
    constexpr int kDraws = 20'000;
    const std::vector<int> points{1, 2};
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto shares = sharing.split(secret, 3, points, bytes).value();
      for (std::size_t i = 0; i < 2; ++i) ++counts[i][static_cast<std::size_t>(shares[i][20])];
    }
    for (const auto& counted : counts) {
      double chi_squared = 0;
      for (const double count : counted)
        chi_squared += (count - kDraws / 256.0) * (count - kDraws / 256.0) / (kDraws / 256.0);
      EXPECT_LT(chi_squared, 255 + 6 * 22.6);
      EXPECT_GT(chi_squared, 255 - 6 * 22.6);
    }
  }
}

TEST(Shamir, RefusesSharesOfNoSecret) {
  SecretSharing sharing;
  Share two_to_256{};
  two_to_256[0] = std::byte{1};
  EXPECT_TRUE(SecretSharing::is_element(two_to_256));
  const std::vector<int> points{1};
  const auto joined = sharing.join(points, std::vector<Share>{two_to_256});
  ASSERT_FALSE(joined.has_value());
  EXPECT_EQ(joined.error().kind, ErrorKind::refused);
  Share modulus = two_to_256;
  modulus[31] = std::byte{1}, modulus[32] = std::byte{0x29};
  EXPECT_FALSE(SecretSharing::is_element(modulus));
  modulus[32] = std::byte{0x28};
  EXPECT_TRUE(SecretSharing::is_element(modulus));
}

TEST(Shamir, FailsWithoutRandomBytes) {
  SecretSharing sharing;
  const RandomBytes none = [](Bytes) -> Status { return failure(ErrorKind::system, "no bytes"); };
  EXPECT_FALSE(sharing.split(filled(1), 2, points_up_to(3), none).has_value());
}

}  // namespace
}  // namespace gradwire::federated

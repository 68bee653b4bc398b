#include "gradwire/engine/segment_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/net/payload_checksum.h"

namespace gradwire {
namespace {

constexpr std::size_t kSegment = 64 * 1024;

/// A message of distinct segments, of which the last is shorter.
std::vector<std::byte> message_of(std::size_t segments, std::size_t rest) {
  std::vector<std::byte> message(segments * kSegment + rest);
  for (std::size_t i = 0; i < message.size(); ++i) {
    message[i] = static_cast<std::byte>(i / kSegment + i % 251);
  }
  return message;
}

std::optional<std::uint32_t> sum_of(ConstBytes message, std::size_t index) {
  const ConstBytes rest = message.subspan(index * kSegment);
  return payload_checksum(rest.first(std::min(rest.size(), kSegment)));
}

TEST(SegmentSums, AreThoseOfWhatHasBecomeReady) {
  const std::vector<std::byte> message = message_of(3, 100);
  const ConstBytes all(message);
  SegmentSums sums;
  sums.add(all.first(kSegment + 10), kSegment, false);
  EXPECT_EQ(sums.at(0), sum_of(all, 0));
  EXPECT_EQ(sums.at(1), std::nullopt) << "not all of it is there";
  sums.add(all.first(3 * kSegment), kSegment, false);
  sums.add(all, kSegment, true);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(sums.at(i), sum_of(all, i)) << i;
  EXPECT_EQ(sums.at(4), std::nullopt);
}

TEST(SegmentSums, AShorterEndWaitsUntilItIsKnownToBeTheEnd) {
  const std::vector<std::byte> message = message_of(1, 100);
  SegmentSums sums;
  sums.add(message, kSegment, false);
  EXPECT_EQ(sums.at(1), std::nullopt);
  sums.add(message, kSegment, true);
  EXPECT_EQ(sums.at(1), sum_of(message, 1));
}

TEST(SegmentSums, WhatGoesOnAsItCameKeepsItsChecksum) {
  const std::vector<std::byte> message = message_of(3, 0);
  const ConstBytes all(message);
  const std::uint32_t came_with = *sum_of(all, 1) + 1;  // Differs from the real checksum, so that
                                                        // its origin is visible.
  SegmentSums sums;
  sums.add(all.first(kSegment), kSegment, false);
  sums.add(all.first(2 * kSegment), kSegment, false, {all.subspan(kSegment, kSegment), came_with});
  EXPECT_EQ(sums.at(0), sum_of(all, 0));
  EXPECT_EQ(sums.at(1), came_with);
  // Used only if it covers exactly the segment.
  sums.add(all, kSegment, true, {all.subspan(2 * kSegment, kSegment / 2), came_with});
  EXPECT_EQ(sums.at(2), sum_of(all, 2));
}

TEST(SegmentSums, WhatWasThereLongAgoIsLeftForWhenItIsSent) {
  const std::vector<std::byte> message = message_of(40, 0);
  const ConstBytes all(message);
  SegmentSums sums;
  sums.add(all.first(kSegment), kSegment, false);
  sums.add(all.first(30 * kSegment), kSegment, false);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(sums.at(i), std::nullopt) << i;
  sums.add(all.first(31 * kSegment), kSegment, false);
  EXPECT_EQ(sums.at(29), std::nullopt);
  EXPECT_EQ(sums.at(30), sum_of(all, 30));
}

}  // namespace
}  // namespace gradwire

#include "gradwire/engine/links/segment_checksums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/net/payload_checksum.h"

namespace gradwire::engine {
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
  return net::payload_checksum(rest.first(std::min(rest.size(), kSegment)));
}

TEST(SegmentChecksums, CoverTheSegmentsThatAreReady) {
  const std::vector<std::byte> message = message_of(3, 100);
  const ConstBytes all(message);
  SegmentChecksums checksums;
  checksums.add(all.first(kSegment + 10), kSegment, false);
  EXPECT_EQ(checksums.at(0), sum_of(all, 0));
  EXPECT_EQ(checksums.at(1), std::nullopt) << "not all of it is there";
  checksums.add(all.first(3 * kSegment), kSegment, false);
  checksums.add(all, kSegment, true);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(checksums.at(i), sum_of(all, i)) << i;
  EXPECT_EQ(checksums.at(4), std::nullopt);
}

TEST(SegmentChecksums, AShorterEndWaitsUntilItIsKnownToBeTheEnd) {
  const std::vector<std::byte> message = message_of(1, 100);
  SegmentChecksums checksums;
  checksums.add(message, kSegment, false);
  EXPECT_EQ(checksums.at(1), std::nullopt);
  checksums.add(message, kSegment, true);
  EXPECT_EQ(checksums.at(1), sum_of(message, 1));
}

TEST(SegmentChecksums, AForwardedSegmentKeepsItsChecksum) {
  const std::vector<std::byte> message = message_of(3, 0);
  const ConstBytes all(message);
  const std::uint32_t came_with = *sum_of(all, 1) + 1;  // Differs from the real checksum, so that
                                                        // its origin is visible.
  SegmentChecksums checksums;
  checksums.add(all.first(kSegment), kSegment, false);
  checksums.add(all.first(2 * kSegment), kSegment, false,
                {all.subspan(kSegment, kSegment), came_with});
  EXPECT_EQ(checksums.at(0), sum_of(all, 0));
  EXPECT_EQ(checksums.at(1), came_with);
  // Used only if it covers exactly the segment.
  checksums.add(all, kSegment, true, {all.subspan(2 * kSegment, kSegment / 2), came_with});
  EXPECT_EQ(checksums.at(2), sum_of(all, 2));
}

TEST(SegmentChecksums, OldDataIsChecksummedWhenItIsSent) {
  const std::vector<std::byte> message = message_of(40, 0);
  const ConstBytes all(message);
  SegmentChecksums checksums;
  checksums.add(all.first(kSegment), kSegment, false);
  checksums.add(all.first(30 * kSegment), kSegment, false);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(checksums.at(i), std::nullopt) << i;
  checksums.add(all.first(31 * kSegment), kSegment, false);
  EXPECT_EQ(checksums.at(29), std::nullopt);
  EXPECT_EQ(checksums.at(30), sum_of(all, 30));
}

}  // namespace
}  // namespace gradwire::engine

#pragma once

#include <cstddef>

namespace gradwire {

/// Default bucket sizes, shared by DataParallel, ZeRO's units, `gradwire train`, `gradwire bench
/// step` and the planner, so that measurements match training.
///
/// Chosen by measuring steps on shaped links, with and without codecs (docs/ladder.md, "Buckets").
/// A bucket of 4 MiB is averaged within tens of milliseconds at 1 Gb/s, so that buckets of higher
/// priority wait only briefly behind it. It is still large enough for the full link rate.
inline constexpr std::size_t kBucketBytes = 4 << 20;
/// Small, so that communication starts early in backward.
inline constexpr std::size_t kFirstBucketBytes = 1 << 20;
/// Smaller still: the last bucket is needed first, and no compute hides it.
inline constexpr std::size_t kLastBucketBytes = 32 << 10;

/// Codecs leave smaller tensors uncompressed: with the scales of their blocks and an additional
/// operation they would save little. Models of a few hundred thousand parameters, as in
/// docs/compression.md, consist of tensors of 4,000 to 16,000 elements, which are compressed.
inline constexpr std::size_t kCodecMinElements = 1024;

/// In 2^20 bytes, as bucket_cap_mb is given.
inline constexpr double kBucketMegabytes = static_cast<double>(kBucketBytes) / (1 << 20);

}  // namespace gradwire

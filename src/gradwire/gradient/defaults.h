#pragma once

#include <cstddef>

namespace gradwire {

/// How gradients are cut unless somebody says otherwise: one place for DataParallel, ZeRO's units,
/// `gradwire train`, `gradwire bench step` and the planner, so that what is measured is what
/// trains.
///
/// Chosen by measuring steps on shaped links, with and without codecs (docs/ladder.md, "Buckets").
/// A bucket of 4 MiB is averaged within tens of milliseconds at 1 Gb/s, so that urgent ones behind
/// it soon have their turn, and is yet large enough for the links' full rate.
inline constexpr std::size_t kBucketBytes = 4 << 20;
/// Small, so that communication starts early in backward.
inline constexpr std::size_t kFirstBucketBytes = 1 << 20;
/// Smaller still: what is complete last is needed first, and nothing can hide it.
inline constexpr std::size_t kLastBucketBytes = 32 << 10;

/// Codecs leave smaller tensors as they are: beside their blocks' scales and one operation more
/// there would be little to save. Models of a few hundred thousand parameters, as
/// docs/compression.md trains them, consist of tensors of 4,000 to 16,000 elements: these do travel
/// compressed.
inline constexpr std::size_t kCodecMinElements = 1024;

/// In 2^20 bytes, as bucket_cap_mb is given.
inline constexpr double kBucketMegabytes = static_cast<double>(kBucketBytes) / (1 << 20);

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace gradwire::step {

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

/// The properties of a parameter that bucket planning uses. Parameters of different `kind` never
/// share a bucket; kinds distinguish element types, devices, and whether a codec may be applied.
struct ParameterSize {
  std::size_t bytes = 0;
  int kind = 0;
};

struct BucketLimits {
  std::size_t first_bytes = kFirstBucketBytes;
  std::size_t bytes = kBucketBytes;
  std::size_t last_bytes = kLastBucketBytes;
};

/// The default limits, with buckets of at most `megabytes` (of 2^20 bytes; must be positive).
BucketLimits limits_capped_at(double megabytes);

/// Bucket limits for local steps. The buckets of a fragment are started together and waited for
/// together, so small buckets would only add operations. Several buckets allow a codec to work on
/// one while another is sent.
inline constexpr BucketLimits kBundleLimits{.first_bytes = std::numeric_limits<std::size_t>::max(),
                                            .bytes = std::numeric_limits<std::size_t>::max(),
                                            .last_bytes = 1 << 20};

/// Returns the parameters (by index) of each bucket. Buckets are in the order in which backward is
/// expected to fill them, the reverse of registration, and so are the parameters in each (Li et
/// al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
/// section 3.2.3). A bucket exceeds its limit only if it holds a single parameter.
///
/// Towards the end buckets taper, down to last_bytes: each takes at most half of the remaining
/// bytes of its kind. The last gradients are needed first by the next forward, and no backward
/// compute is left to hide their communication.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<ParameterSize>& parameters,
                                                   const BucketLimits& limits = {});

}  // namespace gradwire::step

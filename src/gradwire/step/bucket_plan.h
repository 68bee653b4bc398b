#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gradwire/step/defaults.h"

namespace gradwire {

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

}  // namespace gradwire

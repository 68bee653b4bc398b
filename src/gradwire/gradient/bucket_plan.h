#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gradwire/gradient/defaults.h"

namespace gradwire {

/// What matters of a parameter when buckets are planned. Parameters of different kinds never share
/// a bucket: `kind` tells element types, devices, and what a codec may touch apart.
struct ParameterSize {
  std::size_t bytes = 0;
  int kind = 0;
};

struct BucketLimits {
  std::size_t first_bytes = kFirstBucketBytes;
  std::size_t bytes = kBucketBytes;
  std::size_t last_bytes = kLastBucketBytes;
};

/// The usual limits, but buckets of at most `megabytes` (of 2^20 bytes; more than 0).
BucketLimits limits_capped_at(double megabytes);

/// Of what local steps average. A fragment's buckets leave together and are waited for together, so
/// that small ones would only be more operations; but with several a codec works on one while
/// another travels.
inline constexpr BucketLimits kBundleLimits{.first_bytes = std::numeric_limits<std::size_t>::max(),
                                            .bytes = std::numeric_limits<std::size_t>::max(),
                                            .last_bytes = 1 << 20};

/// Which parameters (by index) travel together. Buckets are in the order in which backward is
/// expected to fill them, the reverse of registration, and so are the parameters in each (Li et
/// al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
/// section 3.2.3). A bucket exceeds its limit only if it holds a single parameter.
///
/// Towards the end buckets taper, down to last_bytes: none takes more than half of what of its kind
/// is left. For what is complete last is needed first, and nothing of backward can hide it.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<ParameterSize>& parameters,
                                                   const BucketLimits& limits = {});

}  // namespace gradwire

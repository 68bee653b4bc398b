#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire {

/// What matters of a parameter when buckets are planned. Parameters of different kinds never share
/// a bucket: `kind` tells element types, devices, and what a codec may touch apart.
struct ParameterSize {
  std::size_t bytes = 0;
  int kind = 0;
};

struct BucketLimits {
  std::size_t first_bytes = 1 << 20;  ///< Small, so that communication starts early.
  std::size_t bytes = 25 << 20;
  std::size_t last_bytes = 1 << 20;  ///< Small, so that little is left when backward is over.
};

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

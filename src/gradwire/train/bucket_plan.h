#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire {

/// What matters of a parameter when buckets are planned. `kind` tells element types and devices
/// apart: parameters of different kinds never share a bucket.
struct ParameterSize {
  std::size_t bytes = 0;
  int kind = 0;
};

struct BucketLimits {
  std::size_t first_bytes = 1 << 20;  ///< Small, so that communication starts early.
  std::size_t bytes = 25 << 20;
};

/// Which parameters (by index) travel together. Buckets are in the order in which backward is
/// expected to fill them, the reverse of registration, and so are the parameters in each (Li et
/// al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
/// section 3.2.3). A bucket exceeds its limit only if it holds a single parameter.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<ParameterSize>& parameters,
                                                   const BucketLimits& limits = {});

}  // namespace gradwire

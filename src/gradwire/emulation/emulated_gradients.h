#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// Gradients of realistic size with random values.
class EmulatedGradients {
 public:
  /// Normally distributed values, determined by the seed.
  EmulatedGradients(const std::vector<BucketShape>& buckets, std::uint64_t seed);

  LentSpan lend(std::size_t bucket);

  /// Stands for the optimizer: reads every cache line once. Returns a value that depends on them,
  /// so that the compiler cannot remove the reads.
  float read(std::size_t bucket) const;

 private:
  std::vector<std::vector<float>> values_;
};

}  // namespace gradwire

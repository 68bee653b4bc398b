#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// Gradients of real size that nobody has computed.
class EmulatedGradients {
 public:
  /// Normally distributed values that depend on the seed.
  EmulatedGradients(const std::vector<BucketShape>& buckets, std::uint64_t seed);

  LentSpan lend(std::size_t bucket);

  /// What stands for the optimiser: every cache line is read once. Returns something that depends
  /// on it, so that no compiler leaves it out.
  float read(std::size_t bucket) const;

 private:
  std::vector<std::vector<float>> values_;
};

}  // namespace gradwire

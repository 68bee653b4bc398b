#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/base/lent_span.h"

namespace gradwire::emulation {

/// Random gradients: drawn once and repeated, because drawing 10^8 values takes seconds.
class DrawnGradients {
 public:
  explicit DrawnGradients(std::uint64_t seed);

  void fill(std::vector<float>& values);

 private:
  std::vector<float> drawn_;
  std::size_t next_ = 0;
};

/// Reads every cache line of `values`, as an optimizer does; returns their sum, so that the
/// compiler cannot remove the reads.
float read_all(std::span<const float> values);

/// The value that stands for a number of optimizer steps: float32 represents all integers up to
/// 2^24 exactly.
float marker_of(std::int64_t steps);
/// Writes it to both ends of a part.
void mark(std::span<float> part, float marker);

inline LentSpan lend(std::span<float> values) {
  return {values.data(), values.size(), DataType::float32, nullptr};
}

}  // namespace gradwire::emulation

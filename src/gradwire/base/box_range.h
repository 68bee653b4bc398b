#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/base/box.h"

namespace gradwire {

/// A box of a tensor. It may be given in another shape of as many elements: each third of the rows
/// of a [3 * n, m] matrix divided into parts is a box of [3, n, m].
struct TensorPart {
  Shape view;  ///< Shape in which the box is given; the tensor's, or another one.
  Box box;

  bool operator==(const TensorPart&) const = default;
};

/// All of a tensor.
TensorPart whole_part(const Shape& shape);

/// Consecutive elements, in row-major order, of a part of a tensor.
struct BoxRange {
  TensorPart part;
  std::int64_t begin = 0;  ///< Among the elements of the box.
  std::int64_t count = 0;
};

/// Elements of a tensor that are consecutive in two ranges.
struct SharedRun {
  std::int64_t in_first = 0;   ///< Where they begin, relative to the first range.
  std::int64_t in_second = 0;  ///< Relative to the second range.
  std::int64_t count = 0;
};

/// Returns the elements that both ranges have, in the order of the tensor's elements. Both must be
/// of tensors with as many elements. Takes time in proportion to the rows of the boxes that are not
/// consecutive in the tensor.
std::vector<SharedRun> shared_runs(const BoxRange& first, const BoxRange& second);

}  // namespace gradwire

#pragma once

#include <cstdint>

#include "gradwire/base/types.h"

namespace gradwire {

/// Accumulated cost of averaging gradients on this rank.
struct ReducerStats {
  Duration exposed{};             ///< Time spent waiting for communication that was not hidden.
  std::int64_t bytes = 0;         ///< Gradient bytes all-reduced: the textbook's G, accumulated.
  std::int64_t operations = 0;    ///< Buckets launched.
  std::int64_t synchronized = 0;  ///< Backward passes that ended with averaged gradients.
};

/// One bucket of a backward pass.
struct BucketTiming {
  std::int64_t bytes = 0;
  Time launched{};
  Time needed{};  ///< A wait for it began: `ready - needed` was not hidden.
  Time ready{};   ///< The wait ended.
};

}  // namespace gradwire

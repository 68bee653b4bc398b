#pragma once

#include <cstdint>

#include "gradwire/base/types.h"

namespace gradwire {

/// What averaging gradients has cost so far, on this rank.
struct ReducerStats {
  Duration exposed{};             ///< Waited for communication that nothing hid.
  std::int64_t bytes = 0;         ///< Gradient bytes all-reduced: the textbook's G, summed up.
  std::int64_t operations = 0;    ///< Buckets launched.
  std::int64_t synchronised = 0;  ///< Backward passes that ended with averaged gradients.
};

/// One bucket of a backward pass.
struct BucketTiming {
  std::int64_t bytes = 0;
  Time launched{};
  Time needed{};  ///< Somebody began to wait for it: `ready - needed` is what was not hidden.
  Time ready{};   ///< The wait was over.
};

}  // namespace gradwire

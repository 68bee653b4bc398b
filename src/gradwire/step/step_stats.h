#pragma once

#include <cstdint>

#include "gradwire/base/types.h"

namespace gradwire::step {

/// Accumulated cost of communication on this rank.
struct StepStats {
  Duration exposed{};  ///< Time spent waiting for communication that was not hidden.
  /// Bytes of reduced gradients, before encoding: the textbook's G, accumulated.
  std::int64_t bytes = 0;
  std::int64_t operations = 0;    ///< Reductions started.
  std::int64_t synchronized = 0;  ///< Backward passes whose gradients were reduced.
};

}  // namespace gradwire::step

#pragma once

#include <memory>
#include <set>

#include "gradwire/host/group.h"

namespace gradwire::test {

/// Behavior of a mirror group's all-reduces, by their number from 0.
struct Mirror {
  int launched = 0;
  std::set<int> held;  ///< Operations that stay in flight: waiting for one is an error.
};

/// Rank 0 of 2 ranks, where rank 1 always contributes the same values. Sums are twice the input,
/// and complete when the test decides. Nothing blocks.
ProcessGroup mirror_group(const std::shared_ptr<Mirror>& mirror);

}  // namespace gradwire::test

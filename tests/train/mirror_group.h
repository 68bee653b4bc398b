#pragma once

#include <memory>
#include <set>

#include "gradwire/train/group.h"

namespace gradwire::test {

/// What a mirror group's all-reduces do, by their number from 0.
struct Mirror {
  int launched = 0;
  std::set<int> held;  ///< These are still on their way: waiting for one is an error.
};

/// Rank 0 of 2 ranks, of which the other always brings the same: sums are twice what is there, and
/// arrive as the test wants it. Nothing blocks.
ProcessGroup mirror_group(const std::shared_ptr<Mirror>& mirror);

}  // namespace gradwire::test

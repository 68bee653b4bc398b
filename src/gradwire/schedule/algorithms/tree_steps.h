#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradwire/schedule/schedule.h"

/// A rank's ops in a tree of any shape.
namespace gradwire::schedule {

/// A rank's neighbors in a tree.
struct TreeNeighbors {
  std::optional<Rank> parent;
  std::vector<Rank> children;
};

/// Receives `result` from the parent, or at the root has it after op `ready`, and sends it to the
/// children.
void broadcast_down(ProgramBuilder& builder, const TreeNeighbors& place, Slice result,
                    std::optional<OpIndex> ready);

/// One rank's program of an all-reduce that reduces and broadcasts chunk k over tree k. `places`:
/// the rank's place in each tree.
Program all_reduce_over_trees(std::span<const TreeNeighbors> places);

}  // namespace gradwire::schedule

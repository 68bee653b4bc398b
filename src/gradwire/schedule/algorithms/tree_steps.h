#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradwire/schedule/schedule.h"

/// What a rank of a tree does, whatever the tree.
namespace gradwire {

/// A rank's neighbours in a tree.
struct TreePlace {
  std::optional<Rank> parent;
  std::vector<Rank> children;
};

/// Receives `result` from the parent, or at the root has it after `ready`, and passes it on.
void pass_down(ProgramBuilder& builder, const TreePlace& place, Slice result,
               std::optional<OpIndex> ready);

/// One rank's program of an all-reduce in which chunk k goes up and down tree k. `places`: the
/// rank's, by tree.
Program all_reduce_over_trees(std::span<const TreePlace> places);

}  // namespace gradwire

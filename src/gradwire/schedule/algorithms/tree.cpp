#include <optional>
#include <utility>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/slices.h"
#include "gradwire/schedule/algorithms/sums.h"
#include "gradwire/schedule/algorithms/tree_steps.h"

/// A binary tree with as few levels as possible: place p has its children at 2p+1 and 2p+2. The
/// data travels whole; segments of it flow through all levels at once.
namespace gradwire {
namespace {

/// A rank's place in the tree whose root is rank `root`.
TreePlace place_of(Rank rank, int ranks, Rank root) {
  const int place = (rank - root + ranks) % ranks;
  const auto rank_at = [&](int p) { return (p + root) % ranks; };
  TreePlace found;
  if (place > 0) found.parent = rank_at((place - 1) / 2);
  for (int child : {2 * place + 1, 2 * place + 2}) {
    if (child < ranks) found.children.push_back(rank_at(child));
  }
  return found;
}

Program all_reduce_program(int ranks, Rank rank) {
  const TreePlace place = place_of(rank, ranks, 0);
  return all_reduce_over_trees({&place, 1});
}

Program reduce_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  const TreePlace place = place_of(rank, ranks, root);
  if (place.parent && place.children.empty()) {
    builder.send(*place.parent, input(0));
  } else if (place.parent) {
    const Slice sum = builder.scratch(0);
    const OpIndex added = reduce_or_copy(builder, place.children, input(0), sum);
    builder.send(*place.parent, sum, {added});
  } else {
    builder.finish(reduce_or_copy(builder, place.children, input(0), output(0)));
  }
  return std::move(builder).build();
}

Program broadcast_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  pass_down(builder, place_of(rank, ranks, root), output(0), std::nullopt);
  return std::move(builder).build();
}

}  // namespace

Schedule tree_all_reduce(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_reduce},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks](Rank rank) { return all_reduce_program(ranks, rank); },
          .name = "tree"};
}

Schedule tree_reduce(const Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::reduce, root},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks, root](Rank rank) { return reduce_program(ranks, rank, root); },
          .name = "tree"};
}

Schedule tree_broadcast(const Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::broadcast, root},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks, root](Rank rank) { return broadcast_program(ranks, rank, root); },
          .name = "tree"};
}

}  // namespace gradwire

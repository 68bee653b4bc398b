#include <optional>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"

/// A binary tree with as few levels as possible: place p has its children at 2p+1 and 2p+2. The
/// data travels whole; segments of it flow through all levels at once.
namespace gradwire {
namespace {

constexpr Slice kInput{Buffer::input, 0, 1};
constexpr Slice kOutput{Buffer::output, 0, 1};

/// A rank's neighbours in the tree whose root is rank `root`.
struct Place {
  std::optional<Rank> parent;
  std::vector<Rank> children;
};

Place place_of(Rank rank, int ranks, Rank root) {
  const int place = (rank - root + ranks) % ranks;
  const auto rank_at = [&](int p) { return (p + root) % ranks; };
  Place found;
  if (place > 0) found.parent = rank_at((place - 1) / 2);
  for (int child : {2 * place + 1, 2 * place + 2}) {
    if (child < ranks) found.children.push_back(rank_at(child));
  }
  return found;
}

/// Receives the result from the parent, unless it is `ready` here at the root, and passes it on.
void pass_down(ProgramBuilder& builder, const Place& place, std::vector<OpIndex> ready) {
  if (place.parent) ready = {builder.recv(*place.parent, kOutput)};
  for (Rank child : place.children) builder.send(child, kOutput, ready);
}

/// (own input + first child's sum) + second child's sum. The first child's bytes can be added
/// whenever they come; the second child's must wait for them in scratch.
std::vector<OpIndex> reduce_children(ProgramBuilder& builder, const Place& place) {
  std::vector<OpIndex> sum;
  for (Rank child : place.children) {
    if (sum.empty()) {
      sum = {builder.recv_reduce(child, kOutput, kInput, Order::local_first)};
    } else {
      const Slice held = builder.scratch(0);
      const OpIndex arrived = builder.recv(child, held);
      sum = {builder.reduce(kOutput, held, Order::local_first, {sum.front(), arrived})};
    }
  }
  return sum;
}

Program all_reduce_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  const Place place = place_of(rank, ranks, 0);
  std::vector<OpIndex> sum = reduce_children(builder, place);
  if (ranks == 1) sum = {builder.copy(kOutput, kInput)};
  if (place.parent) {
    builder.send(*place.parent, sum.empty() ? kInput : kOutput, sum);
  } else {
    builder.finish(sum.front());
  }
  // The result overwrites what was sent up: it cannot come down before that has arrived.
  pass_down(builder, place, sum);
  return std::move(builder).build();
}

Program broadcast_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  pass_down(builder, place_of(rank, ranks, root), {});
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

Schedule tree_broadcast(const Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::broadcast, root},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks, root](Rank rank) { return broadcast_program(ranks, rank, root); },
          .name = "tree"};
}

}  // namespace gradwire

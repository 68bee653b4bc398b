#include "gradwire/schedule/algorithms/tree_steps.h"

#include <cstddef>
#include <utility>

#include "gradwire/schedule/algorithms/sums.h"

namespace gradwire::schedule {
namespace {

std::vector<OpIndex> if_any(std::optional<OpIndex> op) {
  return op ? std::vector{*op} : std::vector<OpIndex>{};
}

}  // namespace

void broadcast_down(ProgramBuilder& builder, const TreeNeighbors& place, Slice result,
                    std::optional<OpIndex> ready) {
  if (place.parent) ready = builder.recv(*place.parent, result);
  for (Rank child : place.children) builder.send(child, result, if_any(ready));
}

Program all_reduce_over_trees(std::span<const TreeNeighbors> places) {
  ProgramBuilder builder;
  std::vector<std::optional<OpIndex>> sums;
  // Up all trees before down any: the broadcast of one tree must not delay the reduction of the
  // next.
  for (const TreeNeighbors& place : places) {
    const int chunk = static_cast<int>(sums.size());
    sums.push_back(reduce_from(builder, place.children, input(chunk), output(chunk)));
    std::optional<OpIndex>& sum = sums.back();
    if (place.parent) {
      builder.send(*place.parent, sum ? output(chunk) : input(chunk), if_any(sum));
    } else {
      if (!sum) sum = builder.copy(output(chunk), input(chunk));
      builder.postscale(*sum);
    }
  }
  // The result overwrites the partial sum that was sent up: it cannot arrive before that did.
  for (std::size_t tree = 0; tree < places.size(); ++tree) {
    broadcast_down(builder, places[tree], output(static_cast<int>(tree)), sums[tree]);
  }
  return std::move(builder).build();
}

}  // namespace gradwire::schedule

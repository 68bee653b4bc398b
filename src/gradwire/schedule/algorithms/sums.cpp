#include "gradwire/schedule/algorithms/sums.h"

namespace gradwire::schedule {

std::optional<OpIndex> reduce_from(ProgramBuilder& builder, std::span<const Rank> peers, Slice own,
                                   Slice sum) {
  std::optional<OpIndex> added;
  for (Rank peer : peers) {
    if (!added) {
      added = builder.recv_reduce(peer, sum, own, OperandOrder::local_first);
      continue;
    }
    const Contribution next = receive_to_scratch(builder, peer, own);
    added = builder.reduce(sum, next.held, OperandOrder::local_first, {*added, next.ready});
  }
  return added;
}

OpIndex reduce_or_copy(ProgramBuilder& builder, std::span<const Rank> peers, Slice own, Slice sum) {
  const std::optional<OpIndex> added = reduce_from(builder, peers, own, sum);
  return added ? *added : builder.copy(sum, own);
}

Contribution receive_to_scratch(ProgramBuilder& builder, Rank peer, Slice like) {
  const Slice held = builder.scratch(like.first, like.count);
  return {held, builder.recv(peer, held)};
}

OpIndex reduce_in_rank_order(ProgramBuilder& builder, Slice result, OpIndex own,
                             const Contributions& others, const std::vector<OpIndex>& leaving) {
  std::vector<OpIndex> before = leaving;
  before.push_back(own);
  if (!others.lower.empty()) {
    // Reduce the lower contributions in the scratch of the first.
    const Contribution& first = others.lower.front();
    OpIndex left = first.ready;
    for (std::size_t i = 1; i < others.lower.size(); ++i) {
      const Contribution& next = others.lower[i];
      left = builder.reduce(first.held, next.held, OperandOrder::local_first, {left, next.ready});
    }
    before.push_back(left);
    before = {builder.reduce(result, first.held, OperandOrder::incoming_first, before)};
  }
  for (const Contribution& next : others.upper) {
    before.push_back(next.ready);
    before = {builder.reduce(result, next.held, OperandOrder::local_first, before)};
  }
  return before.back();
}

}  // namespace gradwire::schedule

#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// Every rank sends all its data to every rank, and every rank reduces all of it in rank order: one
/// hop, for data so small that only the latency matters.
namespace gradwire::schedule {
namespace {

Program exchange_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  std::vector<OpIndex> sent;
  for (Rank peer : others_from(rank, ranks)) sent.push_back(builder.send(peer, input(0)));
  Contributions others;
  for (Rank peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    auto& side = peer < rank ? others.lower : others.upper;
    side.push_back(receive_to_scratch(builder, peer, input(0)));
  }
  const OpIndex own = builder.copy(output(0), input(0));
  // In place, the sum overwrites data that is still being sent.
  builder.postscale(reduce_in_rank_order(builder, output(0), own, others, sent));
  return std::move(builder).build();
}

}  // namespace

Schedule exchange_all_reduce(const topology::Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_reduce},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks](Rank rank) { return exchange_program(ranks, rank); },
          .name = "exchange"};
}

}  // namespace gradwire::schedule

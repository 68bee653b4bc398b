#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"

/// In round k every rank notifies the rank 2^k places to the right that it, and all ranks it heard
/// from, have entered the barrier. The number of ranks heard from doubles each round.
namespace gradwire::schedule {
namespace {

/// An empty slice. The message is still sent, and ops that depend on its receipt wait for it:
/// flows_through is false for empty slices, so every dependency here is on the whole op.
constexpr Slice kNothing{Buffer::output, 0, 0};

Program barrier_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  std::vector<OpIndex> before;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const OpIndex sent = builder.send((rank + distance) % ranks, kNothing, before);
    const OpIndex heard = builder.recv((rank - distance + ranks) % ranks, kNothing);
    // `sent` itself depends on all earlier receipts.
    before = {sent, heard};
  }
  return std::move(builder).build();
}

}  // namespace

Schedule dissemination_barrier(const topology::Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::barrier},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks](Rank rank) { return barrier_program(ranks, rank); },
          .name = "dissemination"};
}

}  // namespace gradwire::schedule

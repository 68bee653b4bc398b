#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"

/// In round k every rank tells the one 2^k places to the right that it, and all it has heard from,
/// are here. Whom a rank has heard from doubles each round.
namespace gradwire {
namespace {

/// Of no chunks. The message is sent all the same, and what comes after its receipt waits for it:
/// flows_through is false for empty slices, so every dependency here holds as a whole.
constexpr Slice kNothing{Buffer::output, 0, 0};

Program barrier_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  std::vector<OpIndex> before;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const OpIndex sent = builder.send((rank + distance) % ranks, kNothing, before);
    const OpIndex heard = builder.recv((rank - distance + ranks) % ranks, kNothing);
    // `sent` itself came after all that had been heard before.
    before = {sent, heard};
  }
  return std::move(builder).build();
}

}  // namespace

Schedule dissemination_barrier(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::barrier},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks](Rank rank) { return barrier_program(ranks, rank); },
          .name = "dissemination"};
}

}  // namespace gradwire

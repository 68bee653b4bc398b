#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// Every part is sent directly to its rank and received in its final place. No rank forwards parts,
/// so they may be of any size.
namespace gradwire::schedule {
namespace {

/// All messages at once. Each rank starts with its neighbor, so that no two start with the same
/// receiver.
Program direct_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  for (Rank peer : others_from(rank, ranks)) builder.send(peer, input(peer));
  builder.copy(output(rank), input(rank));
  for (Rank peer : others_from(rank, ranks)) builder.recv(peer, output(peer));
  return std::move(builder).build();
}

/// One partner at a time: in step k, sends to the rank k places to the right and receives from the
/// rank k places to the left. The next send waits for the previous step, which avoids incast.
Program pairwise_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  builder.copy(output(rank), input(rank));
  std::vector<OpIndex> last_step;
  for (int step = 1; step < ranks; ++step) {
    const Rank to = (rank + step) % ranks;
    const Rank from = (rank + ranks - step) % ranks;
    const OpIndex sent = builder.send(to, input(to), last_step);
    last_step = {sent, builder.recv(from, output(from))};
  }
  return std::move(builder).build();
}

Schedule schedule_of(int ranks, Program (*program)(int, Rank), const char* name) {
  return {.spec = {Collective::all_to_all},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks, program](Rank rank) { return program(ranks, rank); },
          .name = name};
}

}  // namespace

Schedule direct_all_to_all(const topology::Topology& topology) {
  return schedule_of(topology.ranks(), direct_program, "direct");
}

Schedule pairwise_all_to_all(const topology::Topology& topology) {
  return schedule_of(topology.ranks(), pairwise_program, "pairwise");
}

}  // namespace gradwire::schedule

#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/slices.h"

/// Every part goes straight to its rank, and lands in its place there: nothing passes through a
/// third rank, so parts may be of any size.
namespace gradwire {
namespace {

/// All at once. Every rank begins with its neighbour, so that no two begin with the same one.
Program direct_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  for (Rank peer : others_from(rank, ranks)) builder.send(peer, input(peer));
  builder.copy(output(rank), input(rank));
  for (Rank peer : others_from(rank, ranks)) builder.recv(peer, output(peer));
  return std::move(builder).build();
}

/// One after the other: in step k to the rank k places to the right, from the one k to the left.
/// The next send waits for the last step, so that nobody hears from many at the same time.
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

Schedule direct_all_to_all(const Topology& topology) {
  return schedule_of(topology.ranks(), direct_program, "direct");
}

Schedule pairwise_all_to_all(const Topology& topology) {
  return schedule_of(topology.ranks(), pairwise_program, "pairwise");
}

}  // namespace gradwire

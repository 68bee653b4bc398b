#include <algorithm>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// Every rank collects the parts of the ranks to its right. After the round with distance d it has
/// the parts of 2d ranks, its own included:
///
///     P = 5, rank 0:   0  |  0 1  |  0 1 2 3  |  all
///
/// In that round it receives the parts of the rank at distance d to the right: all of them, or in
/// the last round only the missing ones. It sends its own parts to the rank at distance d to the
/// left.
namespace gradwire::schedule {
namespace {

/// The slices of `count` ranks' parts, starting at rank `first`: two if rank numbers wrap around to
/// 0.
std::vector<Slice> places(int first, int count, int ranks) {
  const int before_wrap = std::min(count, ranks - first);
  std::vector<Slice> found{output(first, before_wrap)};
  if (before_wrap < count) found.push_back(output(0, count - before_wrap));
  return found;
}

Program all_gather_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  std::vector<OpIndex> there{builder.copy(output(rank), input(0))};
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int count = std::min(distance, ranks - distance);
    const Rank left = (rank + ranks - distance) % ranks;
    const Rank right = (rank + distance) % ranks;
    for (const Slice& mine : places(rank, count, ranks)) builder.send(left, mine, there);
    for (const Slice& theirs : places(right, count, ranks)) {
      there.push_back(builder.recv(right, theirs));
    }
  }
  return std::move(builder).build();
}

}  // namespace

Schedule bruck_all_gather(const topology::Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_gather},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks](Rank rank) { return all_gather_program(ranks, rank); },
          .name = "bruck",
          .sequential_peers = true};
}

}  // namespace gradwire::schedule

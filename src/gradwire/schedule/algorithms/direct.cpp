#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"

/// Everybody to everybody. Chunk c belongs to rank c: each rank sends its input[c] there, rank c
/// reduces what it got in the order of the ranks, and in an all-reduce sends the result to all.
namespace gradwire {
namespace {

Slice input(Rank chunk) {
  return {Buffer::input, static_cast<std::uint32_t>(chunk), 1};
}

Slice output(Rank chunk) {
  return {Buffer::output, static_cast<std::uint32_t>(chunk), 1};
}

/// All ranks but `rank`, beginning with the next one: if every rank sends in this order, no two
/// send to the same one at the same time.
std::vector<Rank> others_from(Rank rank, int ranks) {
  std::vector<Rank> others;
  for (int distance = 1; distance < ranks; ++distance) others.push_back((rank + distance) % ranks);
  return others;
}

/// First hop: sends every other rank its chunk, receives everybody's contribution to this rank's
/// own chunk, and leaves ((x0 + x1) + x2) + ... in `result`. Returns the op that completes it.
///
/// Contributions arrive in any order but are added in the order of the ranks, so each has a slot of
/// its own. `result` starts as this rank's input (in place, that copy is of a chunk onto itself):
/// the lower ranks' sum is put to its left, the higher ranks' contributions are added on its right.
OpIndex reduce_own_chunk(ProgramBuilder& builder, int ranks, Rank rank, Slice result) {
  for (Rank peer : others_from(rank, ranks)) builder.send(peer, input(peer));
  std::vector<Slice> contribution(static_cast<std::size_t>(ranks));
  std::vector<OpIndex> arrived(static_cast<std::size_t>(ranks));
  for (Rank peer : others_from(rank, ranks)) {
    const auto p = static_cast<std::size_t>(peer);
    contribution[p] = builder.scratch(static_cast<std::uint32_t>(rank));
    arrived[p] = builder.recv(peer, contribution[p]);
  }
  const auto own = static_cast<std::size_t>(rank);
  OpIndex lower = arrived[0];
  for (std::size_t p = 1; p < own; ++p) {
    lower =
        builder.reduce(contribution[0], contribution[p], Order::local_first, {lower, arrived[p]});
  }
  OpIndex sum = builder.copy(result, input(rank));
  if (own > 0) {
    sum = builder.reduce(result, contribution[0], Order::incoming_first, {sum, lower});
  }
  for (std::size_t p = own + 1; p < contribution.size(); ++p) {
    sum = builder.reduce(result, contribution[p], Order::local_first, {sum, arrived[p]});
  }
  builder.finish(sum);
  return sum;
}

/// Second hop: sends this rank's chunk, complete after `ready`, to all and receives theirs. What
/// arrives overwrites this rank's input to that chunk; its owner cannot send it before that came.
void share_own_chunk(ProgramBuilder& builder, int ranks, Rank rank, OpIndex ready) {
  for (Rank peer : others_from(rank, ranks)) builder.send(peer, output(rank), {ready});
  for (Rank peer : others_from(rank, ranks)) builder.recv(peer, output(peer));
}

Program all_reduce_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  const OpIndex complete = reduce_own_chunk(builder, ranks, rank, output(rank));
  share_own_chunk(builder, ranks, rank, complete);
  return std::move(builder).build();
}

Program reduce_scatter_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  reduce_own_chunk(builder, ranks, rank, output(0));
  return std::move(builder).build();
}

Program all_gather_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  const OpIndex mine = builder.copy(output(rank), input(0));
  share_own_chunk(builder, ranks, rank, mine);
  return std::move(builder).build();
}

}  // namespace

Schedule direct_all_reduce(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_reduce},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks](Rank rank) { return all_reduce_program(ranks, rank); },
          .name = "direct"};
}

Schedule direct_reduce_scatter(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::reduce_scatter},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks](Rank rank) { return reduce_scatter_program(ranks, rank); },
          .name = "direct"};
}

Schedule direct_all_gather(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_gather},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks](Rank rank) { return all_gather_program(ranks, rank); },
          .name = "direct"};
}

}  // namespace gradwire

#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"

/// The ring. Every rank receives from the rank on its left, r-1, and sends to the one on its
/// right, r+1. The data is cut into P chunks, so that all ranks are busy all the time, each with
/// another chunk.
///
/// An all-reduce goes twice round. On the first way round, chunk c starts at rank c, and every rank
/// that it reaches adds its own input, so that after P-1 hops it arrives complete at rank c-1:
///
///     P = 4, chunk 0:   rank 0 --x0--> rank 1 --x0+x1--> rank 2 --x0+x1+x2--> rank 3: complete
///
/// On the second way round the complete chunk passes all other ranks, which keep a copy. So each
/// chunk's sum is computed once, by one chain of additions, and every rank has the same bits.
namespace gradwire {
namespace {

/// A rank's place in the ring.
struct Ring {
  int ranks;
  Rank rank;

  Rank left() const { return (rank + ranks - 1) % ranks; }
  Rank right() const { return (rank + 1) % ranks; }

  /// The chunk of the rank `back` places to the left, round the ring.
  std::uint32_t chunk(int back) const {
    return static_cast<std::uint32_t>((rank - back + 2 * ranks) % ranks);
  }
};

Slice input(std::uint32_t chunk) {
  return {Buffer::input, chunk, 1};
}

Slice output(std::uint32_t chunk) {
  return {Buffer::output, chunk, 1};
}

/// The second way round: P-1 times, sends what arrived last to the right and receives the next
/// chunk from the left. Begins with this rank's complete chunk, `start` places back; `ready` are
/// the ops that complete it.
///
/// A chunk that comes in overwrites what this rank contributed on the first way round. No
/// dependency is needed for that: the complete chunk cannot come before this rank's part of it
/// left.
void pass_round(ProgramBuilder& builder, const Ring& ring, int start, std::vector<OpIndex> ready) {
  for (int step = 0; step < ring.ranks - 1; ++step) {
    builder.send(ring.right(), output(ring.chunk(start + step)), ready);
    ready = {builder.recv(ring.left(), output(ring.chunk(start + step + 1)))};
  }
}

Program all_reduce_program(const Ring& ring) {
  ProgramBuilder builder;
  if (ring.ranks == 1) {
    builder.finish(builder.copy(output(0), input(0)));
    return std::move(builder).build();
  }
  // The first way round. What is sent on is always what arrived and was added to last.
  builder.send(ring.right(), input(ring.chunk(0)));
  OpIndex partial = 0;
  for (int step = 1; step < ring.ranks; ++step) {
    const std::uint32_t chunk = ring.chunk(step);
    if (step > 1) builder.send(ring.right(), output(ring.chunk(step - 1)), {partial});
    partial = builder.recv_reduce(ring.left(), output(chunk), input(chunk), Order::incoming_first);
  }
  // P-1 hops after it started, the chunk of rank r+1 (which is P-1 places back) is complete here.
  builder.finish(partial);
  pass_round(builder, ring, ring.ranks - 1, {partial});
  return std::move(builder).build();
}

Program reduce_scatter_program(const Ring& ring) {
  ProgramBuilder builder;
  if (ring.ranks == 1) {
    builder.finish(builder.copy(output(0), input(0)));
    return std::move(builder).build();
  }
  // As above, but one place further back, so that chunk r is complete at rank r. The input must
  // stay as it is, so partial sums lie in scratch.
  builder.send(ring.right(), input(ring.chunk(1)));
  for (int step = 2; step <= ring.ranks; ++step) {
    const std::uint32_t chunk = ring.chunk(step);
    const bool complete = step == ring.ranks;
    const Slice sum = complete ? output(0) : builder.scratch(chunk);
    const OpIndex added =
        builder.recv_reduce(ring.left(), sum, input(chunk), Order::incoming_first);
    if (complete) {
      builder.finish(added);
    } else {
      builder.send(ring.right(), sum, {added});
    }
  }
  return std::move(builder).build();
}

Program all_gather_program(const Ring& ring) {
  ProgramBuilder builder;
  const OpIndex mine = builder.copy(output(ring.chunk(0)), input(0));
  pass_round(builder, ring, 0, {mine});
  return std::move(builder).build();
}

Program broadcast_program(const Ring& ring, Rank root) {
  ProgramBuilder builder;
  const Slice all = output(0);
  std::vector<OpIndex> ready;
  if (ring.rank != root) ready = {builder.recv(ring.left(), all)};
  if (ring.right() != root) builder.send(ring.right(), all, ready);
  return std::move(builder).build();
}

}  // namespace

Schedule ring_all_reduce(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_reduce},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program =
              [ranks](Rank rank) {
                return all_reduce_program({ranks, rank});
              },
          .name = "ring"};
}

Schedule ring_reduce_scatter(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::reduce_scatter},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program =
              [ranks](Rank rank) {
                return reduce_scatter_program({ranks, rank});
              },
          .name = "ring"};
}

Schedule ring_all_gather(const Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_gather},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program =
              [ranks](Rank rank) {
                return all_gather_program({ranks, rank});
              },
          .name = "ring"};
}

Schedule ring_broadcast(const Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::broadcast, root},
          .ranks = ranks,
          .chunks = 1,
          .program =
              [ranks, root](Rank rank) {
                return broadcast_program({ranks, rank}, root);
              },
          .name = "ring"};
}

}  // namespace gradwire

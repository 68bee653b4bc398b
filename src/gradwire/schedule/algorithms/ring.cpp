#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// The ring. Every rank receives from its left neighbor (r-1, with one rank per host) and sends to
/// its right neighbor (r+1). The data is cut into P chunks, so that all ranks are busy all the
/// time, each with a different chunk.
///
/// An all-reduce has two phases. In the reduce-scatter phase, chunk c starts at rank c. Every rank
/// that it reaches adds its own input, so that after P-1 hops it arrives complete at rank c-1:
///
///     P = 4, chunk 0:   rank 0 --x0--> rank 1 --x0+x1--> rank 2 --x0+x1+x2--> rank 3: complete
///
/// In the all-gather phase the complete chunk visits all other ranks, which keep a copy. So each
/// chunk's sum is computed once, by one chain of additions, and every rank has the same bits.
namespace gradwire::schedule {
namespace {

/// The ranks in ring order: those of a host are adjacent, so that the ring enters and leaves each
/// host once.
using RingOrder = std::shared_ptr<const std::vector<Rank>>;

RingOrder ring_order(const topology::Topology& topology) {
  std::vector<Rank> order;
  for (int host = 0; host < topology.hosts(); ++host) {
    const auto ranks = topology.ranks_on(host);
    order.insert(order.end(), ranks.begin(), ranks.end());
  }
  return std::make_shared<const std::vector<Rank>>(std::move(order));
}

/// A rank's place in the ring.
class Ring {
 public:
  Ring(RingOrder order, Rank at)
      : rank(at),
        ranks(static_cast<int>(order->size())),
        order_(std::move(order)),
        place_(static_cast<int>(std::ranges::find(*order_, at) - order_->begin())) {}

  Rank left() const { return at(-1); }
  Rank right() const { return at(1); }

  /// The chunk of the rank `hops` places to the left: a chunk's number is a rank's.
  int chunk_of_left(int hops) const { return at(-hops); }

  const Rank rank;
  const int ranks;

 private:
  Rank at(int places_right) const {
    const int place = (place_ + places_right + 2 * ranks) % ranks;
    return (*order_)[static_cast<std::size_t>(place)];
  }

  RingOrder order_;
  int place_;
};

/// The all-gather phase. P-1 times, sends the last received chunk to the right and receives the
/// next chunk from the left. Starts with this rank's complete chunk, `start` places back, which the
/// ops `ready` complete.
///
/// A received chunk overwrites this rank's contribution to the reduce-scatter phase. That needs no
/// dependency: the complete chunk cannot arrive before this rank's contribution to it was sent.
void all_gather_phase(ProgramBuilder& builder, const Ring& ring, int start,
                      std::vector<OpIndex> ready) {
  for (int step = 0; step < ring.ranks - 1; ++step) {
    builder.send(ring.right(), output(ring.chunk_of_left(start + step)), ready);
    ready = {builder.recv(ring.left(), output(ring.chunk_of_left(start + step + 1)))};
  }
}

Program all_reduce_program(const Ring& ring, Rank) {
  ProgramBuilder builder;
  if (ring.ranks == 1) {
    builder.postscale(builder.copy(output(0), input(0)));
    return std::move(builder).build();
  }
  // The reduce-scatter phase: sends the partial sum that was last received and reduced.
  builder.send(ring.right(), input(ring.chunk_of_left(0)));
  OpIndex partial = 0;
  for (int step = 1; step < ring.ranks; ++step) {
    const int chunk = ring.chunk_of_left(step);
    if (step > 1) builder.send(ring.right(), output(ring.chunk_of_left(step - 1)), {partial});
    partial =
        builder.recv_reduce(ring.left(), output(chunk), input(chunk), OperandOrder::incoming_first);
  }
  // P-1 hops after its start, the chunk of rank r+1 (P-1 places back) is complete here.
  builder.postscale(partial);
  all_gather_phase(builder, ring, ring.ranks - 1, {partial});
  return std::move(builder).build();
}

Program reduce_scatter_program(const Ring& ring, Rank) {
  ProgramBuilder builder;
  if (ring.ranks == 1) {
    builder.postscale(builder.copy(output(0), input(0)));
    return std::move(builder).build();
  }
  // The reduce-scatter phase above, but one place further back, so that chunk r is complete at rank
  // r. The input must not change, so partial sums are in scratch.
  builder.send(ring.right(), input(ring.chunk_of_left(1)));
  for (int step = 2; step <= ring.ranks; ++step) {
    const int chunk = ring.chunk_of_left(step);
    const bool complete = step == ring.ranks;
    const Slice sum = complete ? output(0) : builder.scratch(static_cast<std::uint32_t>(chunk));
    const OpIndex added =
        builder.recv_reduce(ring.left(), sum, input(chunk), OperandOrder::incoming_first);
    if (complete) {
      builder.postscale(added);
    } else {
      builder.send(ring.right(), sum, {added});
    }
  }
  return std::move(builder).build();
}

Program all_gather_program(const Ring& ring, Rank) {
  ProgramBuilder builder;
  const OpIndex mine = builder.copy(output(ring.chunk_of_left(0)), input(0));
  all_gather_phase(builder, ring, 0, {mine});
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

/// The chain in reverse direction: the root's left neighbor starts it, and the root receives the
/// sum of all other ranks from its right neighbor.
Program reduce_program(const Ring& ring, Rank root) {
  ProgramBuilder builder;
  const bool begins = ring.right() == root;
  if (ring.rank == root) {
    builder.postscale(ring.ranks == 1 ? builder.copy(output(0), input(0))
                                      : builder.recv_reduce(ring.right(), output(0), input(0),
                                                            OperandOrder::local_first));
  } else if (begins) {
    builder.send(ring.left(), input(0));
  } else {
    const Slice sum = builder.scratch(0);
    const OpIndex added =
        builder.recv_reduce(ring.right(), sum, input(0), OperandOrder::local_first);
    builder.send(ring.left(), sum, {added});
  }
  return std::move(builder).build();
}

Schedule schedule_of(const CollectiveSpec& spec, const topology::Topology& topology,
                     Program (*program)(const Ring&, Rank root)) {
  const bool whole =
      spec.collective == Collective::broadcast || spec.collective == Collective::reduce;
  return {.spec = spec,
          .ranks = topology.ranks(),
          .chunks = whole ? 1u : static_cast<std::uint32_t>(topology.ranks()),
          .program = [order = ring_order(topology), root = spec.root,
                      program](Rank rank) { return program(Ring(order, rank), root); },
          .name = "ring"};
}

}  // namespace

Schedule ring_all_reduce(const topology::Topology& topology) {
  return schedule_of({Collective::all_reduce}, topology, all_reduce_program);
}

Schedule ring_reduce_scatter(const topology::Topology& topology) {
  return schedule_of({Collective::reduce_scatter}, topology, reduce_scatter_program);
}

Schedule ring_all_gather(const topology::Topology& topology) {
  return schedule_of({Collective::all_gather}, topology, all_gather_program);
}

Schedule ring_broadcast(const topology::Topology& topology, Rank root) {
  return schedule_of({Collective::broadcast, root}, topology, broadcast_program);
}

Schedule ring_reduce(const topology::Topology& topology, Rank root) {
  return schedule_of({Collective::reduce, root}, topology, reduce_program);
}

}  // namespace gradwire::schedule

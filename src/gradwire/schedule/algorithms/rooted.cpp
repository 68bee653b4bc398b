#include <utility>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// One hop between the root and all other ranks.
namespace gradwire::schedule {
namespace {

Program reduce_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  if (rank != root) {
    builder.send(root, input(0));
  } else {
    builder.postscale(reduce_or_copy(builder, others_from(rank, ranks), input(0), output(0)));
  }
  return std::move(builder).build();
}

Program gather_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  if (rank != root) {
    builder.send(root, input(0));
  } else {
    builder.copy(output(rank), input(0));
    for (Rank peer : others_from(rank, ranks)) builder.recv(peer, output(peer));
  }
  return std::move(builder).build();
}

Program scatter_program(int ranks, Rank rank, Rank root) {
  ProgramBuilder builder;
  if (rank != root) {
    builder.recv(root, output(0));
  } else {
    for (Rank peer : others_from(rank, ranks)) builder.send(peer, input(peer));
    builder.copy(output(0), input(rank));
  }
  return std::move(builder).build();
}

}  // namespace

Schedule direct_reduce(const topology::Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::reduce, root},
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks, root](Rank rank) { return reduce_program(ranks, rank, root); },
          .name = "direct"};
}

Schedule direct_gather(const topology::Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::gather, root},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks, root](Rank rank) { return gather_program(ranks, rank, root); },
          .name = "direct"};
}

Schedule direct_scatter(const topology::Topology& topology, Rank root) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::scatter, root},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks, root](Rank rank) { return scatter_program(ranks, rank, root); },
          .name = "direct"};
}

}  // namespace gradwire::schedule

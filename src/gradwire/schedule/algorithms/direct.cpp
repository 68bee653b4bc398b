#include <utility>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// Every rank to every rank. Each rank owns some chunks (usually one). The others send it their
/// input to those chunks. It reduces the contributions, starting with its own and its neighbor's,
/// and in an all-reduce sends the result to all.
namespace gradwire::schedule {
namespace {

/// First hop: sends each other owner its chunks, reduces all contributions to this rank's chunks,
/// and leaves the sum in `result`. Returns the op that completes it.
OpIndex reduce_own_chunks(ProgramBuilder& builder, const Owners& owners, Rank rank, Slice result) {
  for (Rank peer : others_from(rank, owners.ranks())) {
    if (owners.count(peer) > 0) {
      builder.send(peer, input(owners.begin(peer), owners.count(peer)));
    }
  }
  if (owners.count(rank) == 0) return 0;
  const Slice own = input(owners.begin(rank), owners.count(rank));
  const OpIndex sum = reduce_or_copy(builder, others_from(rank, owners.ranks()), own, result);
  builder.postscale(sum);
  return sum;
}

/// Second hop: sends this rank's chunks, complete after op `ready`, to all ranks and receives
/// theirs. A received chunk overwrites this rank's input to it; its owner sends it only after that
/// input arrived.
void share_own_chunks(ProgramBuilder& builder, const Owners& owners, Rank rank, OpIndex ready) {
  const Slice mine = output(owners.begin(rank), owners.count(rank));
  for (Rank peer : others_from(rank, owners.ranks())) {
    if (mine.count > 0) builder.send(peer, mine, {ready});
  }
  for (Rank peer : others_from(rank, owners.ranks())) {
    if (owners.count(peer) == 0) continue;
    builder.recv(peer, output(owners.begin(peer), owners.count(peer)));
  }
}

Owners one_chunk_each(int ranks) {
  return Owners::of_counts(std::vector<std::uint32_t>(static_cast<std::size_t>(ranks), 1));
}

Program reduce_scatter_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  reduce_own_chunks(builder, one_chunk_each(ranks), rank, output(0));
  return std::move(builder).build();
}

Program all_gather_program(int ranks, Rank rank) {
  ProgramBuilder builder;
  const OpIndex mine = builder.copy(output(rank), input(0));
  share_own_chunks(builder, one_chunk_each(ranks), rank, mine);
  return std::move(builder).build();
}

}  // namespace

Owners Owners::of_counts(const std::vector<std::uint32_t>& counts) {
  Owners owners{{0}};
  for (std::uint32_t count : counts) owners.first.push_back(owners.first.back() + count);
  return owners;
}

Schedule all_reduce_at_owners(const Owners& owners, std::string name) {
  return {.spec = {Collective::all_reduce},
          .ranks = owners.ranks(),
          .chunks = owners.chunks(),
          .program =
              [owners](Rank rank) {
                ProgramBuilder builder;
                const Slice mine = output(owners.begin(rank), owners.count(rank));
                const OpIndex complete = reduce_own_chunks(builder, owners, rank, mine);
                share_own_chunks(builder, owners, rank, complete);
                return std::move(builder).build();
              },
          .name = std::move(name)};
}

Schedule direct_all_reduce(const topology::Topology& topology) {
  return all_reduce_at_owners(one_chunk_each(topology.ranks()), "direct");
}

Schedule star_all_reduce(const topology::Topology& topology) {
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(topology.ranks()), 0);
  counts.front() = 1;
  return all_reduce_at_owners(Owners::of_counts(counts), "star");
}

Schedule direct_reduce_scatter(const topology::Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::reduce_scatter},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks](Rank rank) { return reduce_scatter_program(ranks, rank); },
          .name = "direct"};
}

Schedule direct_all_gather(const topology::Topology& topology) {
  const int ranks = topology.ranks();
  return {.spec = {Collective::all_gather},
          .ranks = ranks,
          .chunks = static_cast<std::uint32_t>(ranks),
          .program = [ranks](Rank rank) { return all_gather_program(ranks, rank); },
          .name = "direct"};
}

}  // namespace gradwire::schedule

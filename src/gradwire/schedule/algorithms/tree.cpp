#include <memory>
#include <optional>
#include <utility>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"
#include "gradwire/schedule/algorithms/tree_steps.h"

/// A binary tree of minimum depth: place p has its children at 2p+1 and 2p+2. The data is not cut
/// into chunks; its segments are pipelined through all levels.
namespace gradwire::schedule {
namespace {

/// A rank's place in the tree with root `root`.
TreeNeighbors place_of(Rank rank, int ranks, Rank root) {
  const int place = (rank - root + ranks) % ranks;
  const auto rank_at = [&](int p) { return (p + root) % ranks; };
  TreeNeighbors found;
  if (place > 0) found.parent = rank_at((place - 1) / 2);
  for (int child : {2 * place + 1, 2 * place + 2}) {
    if (child < ranks) found.children.push_back(rank_at(child));
  }
  return found;
}

/// The same tree over hosts. Each host's leader is its first rank, or the root on the root's host.
/// The host's other ranks are the leader's children.
TreeNeighbors place_among_hosts(const topology::Topology& topology, Rank rank, Rank root) {
  const auto leader_of = [&](int host) {
    return host == topology.host_of(root) ? root : topology.ranks_on(host).front();
  };
  const int host = topology.host_of(rank);
  if (rank != leader_of(host)) return {.parent = leader_of(host), .children = {}};
  const TreeNeighbors of_host = place_of(host, topology.hosts(), topology.host_of(root));
  TreeNeighbors found;
  if (of_host.parent) found.parent = leader_of(*of_host.parent);
  // Messages to other hosts go first.
  for (int below : of_host.children) found.children.push_back(leader_of(below));
  for (Rank local : topology.ranks_on(host)) {
    if (local != rank) found.children.push_back(local);
  }
  return found;
}

Program reduce_program(const TreeNeighbors& place) {
  ProgramBuilder builder;
  if (place.parent && place.children.empty()) {
    builder.send(*place.parent, input(0));
  } else if (place.parent) {
    const Slice sum = builder.scratch(0);
    const OpIndex added = reduce_or_copy(builder, place.children, input(0), sum);
    builder.send(*place.parent, sum, {added});
  } else {
    builder.postscale(reduce_or_copy(builder, place.children, input(0), output(0)));
  }
  return std::move(builder).build();
}

Program broadcast_program(const TreeNeighbors& place) {
  ProgramBuilder builder;
  broadcast_down(builder, place, output(0), std::nullopt);
  return std::move(builder).build();
}

Schedule over_ranks(const CollectiveSpec& spec, const topology::Topology& topology,
                    Program (*program)(const TreeNeighbors&)) {
  const int ranks = topology.ranks();
  return {.spec = spec,
          .ranks = ranks,
          .chunks = 1,
          .program = [ranks, root = spec.root,
                      program](Rank rank) { return program(place_of(rank, ranks, root)); },
          .name = "tree"};
}

Schedule over_hosts(const CollectiveSpec& spec, const topology::Topology& topology,
                    Program (*program)(const TreeNeighbors&)) {
  const auto shared = std::make_shared<const topology::Topology>(topology);
  return {.spec = spec,
          .ranks = topology.ranks(),
          .chunks = 1,
          .program = [shared, root = spec.root, program](
                         Rank rank) { return program(place_among_hosts(*shared, rank, root)); },
          .name = "host_tree"};
}

}  // namespace

Schedule tree_all_reduce(const topology::Topology& topology) {
  return over_ranks({Collective::all_reduce}, topology, [](const TreeNeighbors& place) {
    return all_reduce_over_trees({&place, 1});
  });
}

Schedule tree_reduce(const topology::Topology& topology, Rank root) {
  return over_ranks({Collective::reduce, root}, topology, reduce_program);
}

Schedule tree_broadcast(const topology::Topology& topology, Rank root) {
  return over_ranks({Collective::broadcast, root}, topology, broadcast_program);
}

Schedule host_tree_reduce(const topology::Topology& topology, Rank root) {
  return over_hosts({Collective::reduce, root}, topology, reduce_program);
}

Schedule host_tree_broadcast(const topology::Topology& topology, Rank root) {
  return over_hosts({Collective::broadcast, root}, topology, broadcast_program);
}

}  // namespace gradwire::schedule

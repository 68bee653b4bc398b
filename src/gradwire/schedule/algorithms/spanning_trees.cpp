#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/tree_packing.h"
#include "gradwire/schedule/algorithms/tree_steps.h"

/// Several trees over the hosts; each reduces and broadcasts its part of the data. Fast hosts have
/// many children, slow hosts are leaves. One rank per host, a different one in each tree, is the
/// host's node in the tree; the host's other ranks are its children.
namespace gradwire::schedule {
namespace {

/// The rank that is the host's node in tree number `tree`.
Rank leader_of(const topology::Topology& topology, int host, std::size_t tree) {
  const auto ranks = topology.ranks_on(host);
  return ranks[tree % ranks.size()];
}

/// Places of all ranks in one tree.
std::vector<TreeNeighbors> places_in(const topology::Topology& topology, const HostTree& tree,
                                     std::size_t number) {
  std::vector<TreeNeighbors> places(static_cast<std::size_t>(topology.ranks()));
  const auto join = [&](Rank parent, Rank child) {
    places[static_cast<std::size_t>(parent)].children.push_back(child);
    places[static_cast<std::size_t>(child)].parent = parent;
  };
  for (int host : tree.order) {
    const Rank leader = leader_of(topology, host, number);
    const int above = tree.parent[static_cast<std::size_t>(host)];
    if (above >= 0) join(leader_of(topology, above, number), leader);
    for (Rank local : topology.ranks_on(host)) {
      if (local != leader) join(leader, local);
    }
  }
  return places;
}

}  // namespace

Schedule spanning_trees_all_reduce(const topology::Topology& topology) {
  const auto places = std::make_shared<std::vector<std::vector<TreeNeighbors>>>(
      static_cast<std::size_t>(topology.ranks()));
  const std::vector<HostTree> trees = pack_trees(topology);
  for (std::size_t number = 0; number < trees.size(); ++number) {
    const std::vector<TreeNeighbors> here = places_in(topology, trees[number], number);
    for (std::size_t rank = 0; rank < here.size(); ++rank) (*places)[rank].push_back(here[rank]);
  }
  return {.spec = {Collective::all_reduce},
          .ranks = topology.ranks(),
          .chunks = static_cast<std::uint32_t>(trees.size()),
          .program =
              [places](Rank rank) {
                return all_reduce_over_trees((*places)[static_cast<std::size_t>(rank)]);
              },
          .name = "spanning_trees"};
}

}  // namespace gradwire::schedule

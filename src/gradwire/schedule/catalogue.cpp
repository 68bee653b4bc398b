#include "gradwire/schedule/catalogue.h"

#include <array>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/schedule/algorithms/algorithms.h"

namespace gradwire::schedule {
namespace {

bool has_shared_hosts(const topology::Topology& topology) {
  return topology.hosts() > 1 && topology.ranks() > topology.hosts();
}

bool is_unequal(const topology::Topology& topology) {
  const double rate = topology.host(0).port().bytes_per_second;
  for (int host = 0; host < topology.hosts(); ++host) {
    if (topology.host(host).port().bytes_per_second != rate) return true;
    for (int other = 0; other < topology.hosts(); ++other) {
      if (topology.measured(host, other)) return true;
    }
  }
  return false;
}

constexpr std::array<Algorithm, 35> kCatalogue{{
    {Collective::all_reduce, "ring", "reduce-scatter and all-gather around a ring",
     [](const topology::Topology& t, const CollectiveSpec&) { return ring_all_reduce(t); }},
    {Collective::all_reduce, "direct", "two hops, each rank reduces 1/P of the data",
     [](const topology::Topology& t, const CollectiveSpec&) { return direct_all_reduce(t); }},
    {Collective::all_reduce, "tree", "reduce up a binary tree, broadcast down it",
     [](const topology::Topology& t, const CollectiveSpec&) { return tree_all_reduce(t); }},
    {Collective::all_reduce, "recursive_doubling", "log P exchanges of all data",
     [](const topology::Topology& t, const CollectiveSpec&) {
       return recursive_doubling_all_reduce(t);
     }},
    {Collective::all_reduce, "exchange", "one hop, every rank sends all data to every rank",
     [](const topology::Topology& t, const CollectiveSpec&) { return exchange_all_reduce(t); }},
    {Collective::all_reduce, "halving_doubling", "recursive halving, then recursive doubling",
     [](const topology::Topology& t, const CollectiveSpec&) {
       return halving_doubling_all_reduce(t);
     }},
    {Collective::all_reduce, "double_tree", "reduce and broadcast over two binary trees, half each",
     [](const topology::Topology& t, const CollectiveSpec&) { return double_tree_all_reduce(t); }},
    {Collective::all_reduce, "star", "rank 0 reduces all data: a parameter server",
     [](const topology::Topology& t, const CollectiveSpec&) { return star_all_reduce(t); }},
    {Collective::all_reduce, "hierarchical", "within hosts, across hosts, within hosts",
     [](const topology::Topology& t, const CollectiveSpec&) { return hierarchical_all_reduce(t); },
     has_shared_hosts},
    {Collective::all_reduce, "leaders", "one leader per host, leaders exchange all data",
     [](const topology::Topology& t, const CollectiveSpec&) { return leaders_all_reduce(t); },
     has_shared_hosts},
    {Collective::all_reduce, "uneven", "direct, faster ports own larger shares",
     [](const topology::Topology& t, const CollectiveSpec&) { return uneven_all_reduce(t); },
     is_unequal},
    {Collective::all_reduce, "spanning_trees", "spanning trees packed over unequal links",
     [](const topology::Topology& t, const CollectiveSpec&) {
       return spanning_trees_all_reduce(t);
     },
     is_unequal},
    {Collective::reduce, "tree", "up a binary tree",
     [](const topology::Topology& t, const CollectiveSpec& s) { return tree_reduce(t, s.root); }},
    {Collective::reduce, "ring", "along a chain to the root",
     [](const topology::Topology& t, const CollectiveSpec& s) { return ring_reduce(t, s.root); }},
    {Collective::reduce, "direct", "one hop to the root",
     [](const topology::Topology& t, const CollectiveSpec& s) { return direct_reduce(t, s.root); }},
    {Collective::reduce, "host_tree", "up a tree of hosts",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return host_tree_reduce(t, s.root);
     },
     has_shared_hosts},
    {Collective::broadcast, "tree", "down a binary tree",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return tree_broadcast(t, s.root);
     }},
    {Collective::broadcast, "ring", "along a chain from the root",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return ring_broadcast(t, s.root);
     }},
    {Collective::broadcast, "binomial", "down a binomial tree",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return binomial_broadcast(t, s.root);
     }},
    {Collective::broadcast, "host_tree", "down a tree of hosts",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return host_tree_broadcast(t, s.root);
     },
     has_shared_hosts},
    {Collective::all_gather, "ring", "once around a ring",
     [](const topology::Topology& t, const CollectiveSpec&) { return ring_all_gather(t); }},
    {Collective::all_gather, "direct", "one hop, every rank to every rank",
     [](const topology::Topology& t, const CollectiveSpec&) { return direct_all_gather(t); }},
    {Collective::all_gather, "bruck", "log P hops of doubling size",
     [](const topology::Topology& t, const CollectiveSpec&) { return bruck_all_gather(t); }},
    {Collective::all_gather, "recursive_doubling", "log P exchanges of doubling size",
     [](const topology::Topology& t, const CollectiveSpec&) {
       return recursive_doubling_all_gather(t);
     }},
    {Collective::gather, "direct", "one hop to the root",
     [](const topology::Topology& t, const CollectiveSpec& s) { return direct_gather(t, s.root); }},
    {Collective::gather, "binomial", "up a binomial tree",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return binomial_gather(t, s.root);
     }},
    {Collective::reduce_scatter, "ring", "once around a ring",
     [](const topology::Topology& t, const CollectiveSpec&) { return ring_reduce_scatter(t); }},
    {Collective::reduce_scatter, "direct", "one hop, every rank to every rank",
     [](const topology::Topology& t, const CollectiveSpec&) { return direct_reduce_scatter(t); }},
    {Collective::reduce_scatter, "recursive_halving", "log P exchanges of halving size",
     [](const topology::Topology& t, const CollectiveSpec&) {
       return recursive_halving_reduce_scatter(t);
     }},
    {Collective::scatter, "direct", "one hop from the root",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return direct_scatter(t, s.root);
     }},
    {Collective::scatter, "binomial", "down a binomial tree",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return binomial_scatter(t, s.root);
     }},
    {Collective::all_to_all, "direct", "one hop, every rank to every rank",
     [](const topology::Topology& t, const CollectiveSpec&) { return direct_all_to_all(t); }},
    {Collective::all_to_all, "pairwise", "P-1 hops, one partner at a time",
     [](const topology::Topology& t, const CollectiveSpec&) { return pairwise_all_to_all(t); }},
    {Collective::barrier, "dissemination", "log P rounds of empty messages",
     [](const topology::Topology& t, const CollectiveSpec&) { return dissemination_barrier(t); }},
    {Collective::point_to_point, "point_to_point", "from one rank to another",
     [](const topology::Topology& t, const CollectiveSpec& s) {
       return point_to_point(t, s.root, s.target);
     }},
}};

constexpr std::array<Collective, 10> kCollectives{
    Collective::all_reduce,    Collective::reduce,     Collective::broadcast,
    Collective::all_gather,    Collective::gather,     Collective::reduce_scatter,
    Collective::scatter,       Collective::all_to_all, Collective::barrier,
    Collective::point_to_point};

Status check_rank(std::string_view what, Rank rank, int ranks) {
  if (rank >= 0 && rank < ranks) return {};
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("the {} is rank {}, but there are only ranks 0 to {}", what, rank, ranks - 1));
}

}  // namespace

std::span<const Algorithm> algorithm_catalogue() {
  return kCatalogue;
}

std::vector<std::string_view> algorithm_names(Collective collective) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : kCatalogue) {
    if (algorithm.collective == collective) names.push_back(algorithm.name);
  }
  return names;
}

std::span<const Collective> all_collectives() {
  return kCollectives;
}

std::optional<Collective> collective_named(std::string_view name) {
  for (Collective collective : kCollectives) {
    if (name_of(collective) == name) return collective;
  }
  return std::nullopt;
}

Result<Schedule> make_schedule(const CollectiveSpec& spec, std::string_view name,
                               const topology::Topology& topology) {
  if (Status ok = check_rank("root", spec.root, topology.ranks()); !ok) {
    return tl::unexpected(ok.error());
  }
  if (Status ok = check_rank("target", spec.target, topology.ranks()); !ok) {
    return tl::unexpected(ok.error());
  }
  for (const Algorithm& algorithm : kCatalogue) {
    if (algorithm.collective == spec.collective && algorithm.name == name) {
      return algorithm.make(topology, spec);
    }
  }
  return failure(ErrorKind::invalid_argument,
                 unknown_name(fmt::format("{} algorithm", name_of(spec.collective)), name,
                              algorithm_names(spec.collective)));
}

}  // namespace gradwire::schedule

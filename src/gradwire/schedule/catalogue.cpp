#include "gradwire/schedule/catalogue.h"

#include <array>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/schedule/algorithms/algorithms.h"

namespace gradwire {
namespace {

constexpr std::array<Algorithm, 12> kCatalogue{{
    {Collective::all_reduce, "ring", "twice round a ring of neighbours, in P chunks",
     [](const Topology& t, const CollectiveSpec&) { return ring_all_reduce(t); }},
    {Collective::all_reduce, "direct", "two hops, each rank reduces its 1/P",
     [](const Topology& t, const CollectiveSpec&) { return direct_all_reduce(t); }},
    {Collective::all_reduce, "tree", "up a binary tree and down again",
     [](const Topology& t, const CollectiveSpec&) { return tree_all_reduce(t); }},
    {Collective::all_reduce, "recursive_doubling", "log P exchanges of the whole",
     [](const Topology& t, const CollectiveSpec&) { return recursive_doubling_all_reduce(t); }},
    {Collective::broadcast, "tree", "down a binary tree",
     [](const Topology& t, const CollectiveSpec& spec) { return tree_broadcast(t, spec.root); }},
    {Collective::broadcast, "ring", "along a chain",
     [](const Topology& t, const CollectiveSpec& spec) { return ring_broadcast(t, spec.root); }},
    {Collective::all_gather, "ring", "once round a ring",
     [](const Topology& t, const CollectiveSpec&) { return ring_all_gather(t); }},
    {Collective::all_gather, "direct", "one hop, everybody to everybody",
     [](const Topology& t, const CollectiveSpec&) { return direct_all_gather(t); }},
    {Collective::reduce_scatter, "ring", "once round a ring",
     [](const Topology& t, const CollectiveSpec&) { return ring_reduce_scatter(t); }},
    {Collective::reduce_scatter, "direct", "one hop, everybody to everybody",
     [](const Topology& t, const CollectiveSpec&) { return direct_reduce_scatter(t); }},
    {Collective::barrier, "dissemination", "log P rounds of empty messages",
     [](const Topology& t, const CollectiveSpec&) { return dissemination_barrier(t); }},
    {Collective::point_to_point, "point_to_point", "from one rank to another",
     [](const Topology& t, const CollectiveSpec& spec) {
       return point_to_point(t, spec.root, spec.target);
     }},
}};

constexpr std::array<Collective, 6> kCollectives{
    Collective::all_reduce,     Collective::broadcast, Collective::all_gather,
    Collective::reduce_scatter, Collective::barrier,   Collective::point_to_point};

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
                               const Topology& topology) {
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

}  // namespace gradwire

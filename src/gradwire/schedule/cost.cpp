#include "gradwire/schedule/cost.h"

#include <algorithm>

#include "gradwire/base/check.h"
#include "gradwire/schedule/link_model.h"
#include "gradwire/schedule/proof/wait_graph.h"

namespace gradwire {
namespace {

std::uint32_t longest_chain(const ProgramSet& programs, const proof::WaitGraph& graph) {
  const auto [order, cycle] = proof::order_ops(graph, proof::previous_in_stream(programs));
  GRADWIRE_CHECK(cycle.empty());
  std::vector<std::uint32_t> hops(programs.size(), 0);
  std::uint32_t longest = 0;
  for (NodeId node : order) {
    for (const proof::Arrow& arrow : graph.before(node)) {
      hops[node] = std::max(hops[node], hops[arrow.from]);
    }
    if (receives(programs.op(node))) ++hops[node];
    longest = std::max(longest, hops[node]);
  }
  return longest;
}

}  // namespace

ScheduleCost::ScheduleCost(const Schedule& schedule)
    : programs_(schedule),
      partner_(match_messages(programs_)),
      graph_(std::make_unique<proof::WaitGraph>(programs_, partner_)),
      steps_(longest_chain(programs_, *graph_)) {}

ScheduleCost::~ScheduleCost() = default;

Counts ScheduleCost::count(const ChunkLayout& layout) const {
  const auto ranks = static_cast<std::size_t>(programs_.ranks());
  Counts counts{steps_, std::vector<std::size_t>(ranks), std::vector<std::size_t>(ranks)};
  for (Rank rank = 0; rank < programs_.ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (const Op& op : programs_.program(rank).ops) {
      if (!sends(op)) continue;
      ++counts.messages_sent[r];
      counts.bytes_sent[r] += length(op, programs_.program(rank), layout);
    }
  }
  return counts;
}

Estimate ScheduleCost::estimate(const Topology& topology, const ChunkLayout& layout,
                                const CostOptions& options) const {
  GRADWIRE_CHECK(topology.ranks() == programs_.ranks());
  return LinkModel(programs_, partner_, *graph_, topology, layout, options).run();
}

}  // namespace gradwire

#include "gradwire/schedule/cost/cost.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/check.h"
#include "gradwire/schedule/cost/link_model.h"
#include "gradwire/schedule/cost/message_graph.h"
#include "gradwire/schedule/cost/schedule_links.h"
#include "gradwire/schedule/verify/wait_graph.h"

namespace gradwire {
namespace {

Duration rounded(double nanoseconds) {
  return Duration(std::llround(nanoseconds));
}

std::uint32_t longest_chain(const ProgramSet& programs, const std::vector<NodeId>& partner) {
  const proof::WaitGraph graph(programs, partner);
  const auto [order, cycle] = proof::order_ops(graph, proof::previous_in_stream(programs));
  GRADWIRE_CHECK(cycle.empty());
  std::vector<std::uint32_t> hops(programs.size(), 0);
  std::uint32_t longest = 0;
  for (NodeId node : order) {
    for (const proof::Arrow& arrow : graph.predecessors(node)) {
      hops[node] = std::max(hops[node], hops[arrow.from]);
    }
    if (receives(programs.op(node))) ++hops[node];
    longest = std::max(longest, hops[node]);
  }
  return longest;
}

}  // namespace

ScheduleCost::ScheduleCost(const Schedule& schedule) : programs_(schedule) {
  const std::vector<NodeId> partner = match_messages(programs_);
  graph_ = std::make_unique<MessageGraph>(programs_, partner);
  steps_ = longest_chain(programs_, partner);
}

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
  const LinkMap links = links_of(programs_, topology, layout, options);
  LinkModel model(*graph_, links, options);
  Estimate estimate{.total = rounded(model.run())};
  estimate.ops.resize(static_cast<std::size_t>(programs_.ranks()));
  for (NodeId node = 0; node < programs_.size(); ++node) {
    estimate.ops[static_cast<std::size_t>(programs_.ref(node).rank)].push_back(
        {rounded(model.begin(node)), rounded(model.end(node))});
  }
  for (const NodeId node : model.critical_path())
    estimate.critical_path.push_back(programs_.ref(node));
  return estimate;
}

}  // namespace gradwire

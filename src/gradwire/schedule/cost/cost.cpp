#include "gradwire/schedule/cost/cost.h"

#include <cmath>

#include "gradwire/base/check.h"
#include "gradwire/schedule/cost/incast.h"
#include "gradwire/schedule/cost/link_model.h"
#include "gradwire/schedule/cost/message_graph.h"
#include "gradwire/schedule/cost/schedule_links.h"

namespace gradwire {
namespace {

Duration rounded(double nanoseconds) {
  return Duration(std::llround(nanoseconds));
}

}  // namespace

ScheduleCost::ScheduleCost(const Schedule& schedule)
    : programs_(schedule),
      graph_(std::make_unique<MessageGraph>(programs_, match_messages(programs_))) {}

ScheduleCost::~ScheduleCost() = default;

Counts ScheduleCost::count(const ChunkLayout& layout) const {
  const auto ranks = static_cast<std::size_t>(programs_.ranks());
  Counts counts{graph_->longest_chain(), std::vector<std::size_t>(ranks),
                std::vector<std::size_t>(ranks)};
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
  LinkMap links = links_of(programs_, topology, layout, options);
  add_incast(*graph_, topology.ranks(), options.incast, links);
  LinkModel model(*graph_, links, options);
  Estimate estimate{.total = rounded(model.run())};
  estimate.busiest_port = rounded(model.busiest_port());
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

#include "gradwire/schedule/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gradwire/base/check.h"
#include "gradwire/schedule/cost/constants.h"
#include "gradwire/schedule/cost/link_model.h"
#include "gradwire/schedule/cost/message_graph.h"

namespace gradwire::schedule {
namespace {

Duration rounded(double nanoseconds) {
  return Duration(std::llround(nanoseconds));
}

double nanoseconds(Duration duration) {
  return static_cast<double>(duration.count());
}

std::size_t index(int number) {
  return static_cast<std::size_t>(number);
}

/// LinkMap::ports has the hosts' ports first, then one port per rank to the other ranks of its
/// host.
class Links {
 public:
  Links(const topology::Topology& topology, const CostOptions& options)
      : topology_(topology),
        options_(options),
        wires_(index(topology.hosts()) * index(topology.hosts()), OpLoad::kNone) {
    map_.hosts = index(topology.hosts());
    map_.slowdown.assign(index(topology.ranks()), 1);
    map_.machines.assign(index(topology.ranks()), OpLoad::kNone);
    for (int number = 0; number < topology.hosts(); ++number) add_host(number);
    for (Rank rank = 0; rank < topology.ranks(); ++rank)
      map_.ports.push_back(topology.host(topology.host_of(rank)).inside.bytes_per_second);
  }

  void add_op(const Op& op, Rank rank, std::size_t bytes) {
    OpLoad load{.bytes = static_cast<double>(bytes)};
    if (sends(op) || receives(op)) add_message(load, op, rank);
    map_.ops.push_back(load);
  }

  LinkMap take() && { return std::move(map_); }

 private:
  void add_host(int number) {
    const topology::Host& host = topology_.host(number);
    const auto ranks = topology_.ranks_on(number);
    map_.ports.push_back(host.port().bytes_per_second);
    for (const Rank rank : ranks) {
      if (host.cores == 0) continue;
      map_.slowdown[index(rank)] = std::max(1.0, static_cast<double>(ranks.size()) / host.cores);
      if (host.kernel >= 0) map_.machines[index(rank)] = machine_of(host);
    }
    for (int other = 0; other < topology_.hosts(); ++other) {
      const auto measured = topology_.measured(number, other);
      if (!measured) continue;
      wires_[index(number) * index(topology_.hosts()) + index(other)] =
          static_cast<std::uint32_t>(map_.wires.size());
      map_.wires.push_back(measured->bytes_per_second);
    }
  }

  std::uint32_t machine_of(const topology::Host& host) {
    const auto [at, is_new] =
        machines_.try_emplace(host.kernel, static_cast<std::uint32_t>(map_.cores.size()));
    if (is_new) map_.cores.push_back(host.cores);
    return at->second;
  }

  void add_message(OpLoad& load, const Op& op, Rank rank) {
    const int host = topology_.host_of(rank), other = topology_.host_of(op.peer);
    const bool inside = host == other;
    load.port = static_cast<std::uint32_t>(inside ? topology_.hosts() + rank : host);
    load.handling = nanoseconds(inside ? options_.per_segment_inside : options_.per_segment);
    if (!sends(op)) return;
    load.latency = nanoseconds(topology_.path(rank, op.peer).latency);
    load.wire = wires_[index(host) * index(topology_.hosts()) + index(other)];
  }

  const topology::Topology& topology_;
  const CostOptions& options_;
  std::vector<std::uint32_t> wires_;       ///< By pair of hosts.
  std::map<int, std::uint32_t> machines_;  ///< By kernel.
  LinkMap map_;
};

std::size_t length(const Op& op, const Program& program, const ChunkLayout& layout) {
  return layout.size(extent(op), program);
}

LinkMap links_of(const ProgramSet& programs, const topology::Topology& topology,
                 const ChunkLayout& layout, const CostOptions& options) {
  Links links(topology, options);
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    const Program& program = programs.program(rank);
    for (const Op& op : program.ops) links.add_op(op, rank, length(op, program, layout));
  }
  return std::move(links).take();
}

}  // namespace

CostOptions executor_costs(std::size_t max_segment_bytes, int segments) {
  return {.segment_bytes = max_segment_bytes,
          .segments_per_message = segments > 0 ? segments : kSegmentsPerMessage,
          .max_segments = 1024,
          .per_segment = fitted::kSegmentTime,
          .per_segment_inside = fitted::kSegmentTimeInside,
          .reduce_bytes_per_second = fitted::kReduceRate,
          .incast = {.direct = fitted::kIncastDirect,
                     .forwarding = fitted::kIncastForwarding,
                     .inside = fitted::kIncastInside,
                     .inside_bytes = fitted::kIncastInsideBytes}};
}

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

Estimate ScheduleCost::estimate(const topology::Topology& topology, const ChunkLayout& layout,
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

}  // namespace gradwire::schedule

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule/program_set.h"

namespace gradwire::schedule::proof {

/// A dependency on op `from`. `whole`: on all of it; otherwise byte by byte, so that byte n of the
/// dependent op waits for byte n of `from`.
struct Arrow {
  NodeId from = 0;
  bool whole = false;
};

/// The dependencies of every op: those declared in `after`, whole or byte by byte as flows_through
/// says, and for a receive the matching send, byte by byte.
class WaitGraph {
 public:
  WaitGraph(const ProgramSet& programs, const std::vector<NodeId>& partner);

  NodeId size() const { return static_cast<NodeId>(first_.size() - 1); }
  std::span<const Arrow> predecessors(NodeId node) const {
    return std::span(arrows_).subspan(first_[node], first_[node + 1] - first_[node]);
  }

 private:
  std::vector<std::uint32_t> first_;  ///< By node, and one past the last.
  std::vector<Arrow> arrows_;
};

/// Returns for every send the previous send to the same peer, kNoNode for all other ops. Messages
/// to a peer share one stream, where a message may have to wait until the previous one is sent.
std::vector<NodeId> previous_in_stream(const ProgramSet& programs);

/// Either an order in which all ops can run one after the other, or a cycle in which each op waits
/// for the next, and the last for the first.
struct Ordering {
  std::vector<NodeId> order;
  std::vector<NodeId> cycle;
};

Ordering order_ops(const WaitGraph& graph, const std::vector<NodeId>& previous);

}  // namespace gradwire::schedule::proof

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule/program_set.h"

namespace gradwire::proof {

/// An op that another one waits for. `whole`: for all of it; else byte by byte, so that byte n of
/// the one waits for byte n of the other.
struct Arrow {
  NodeId from = 0;
  bool whole = false;
};

/// What every op waits for: those it was declared to come after, whole or byte by byte as
/// flows_through says, and for a receive the matching send, byte by byte.
class WaitGraph {
 public:
  WaitGraph(const ProgramSet& programs, const std::vector<NodeId>& partner);

  NodeId size() const { return static_cast<NodeId>(first_.size() - 1); }
  std::span<const Arrow> before(NodeId node) const {
    return std::span(arrows_).subspan(first_[node], first_[node + 1] - first_[node]);
  }

 private:
  std::vector<std::uint32_t> first_;  ///< Per node, and one past the last.
  std::vector<Arrow> arrows_;
};

/// For every send the one before it to the same peer, kNoNode for others: messages to a peer share
/// one stream, in which the next may have to wait until the last has gone.
std::vector<NodeId> previous_in_stream(const ProgramSet& programs);

/// Either an order in which all ops can run one after the other, or ops of which each waits for the
/// next, and the last for the first.
struct Ordering {
  std::vector<NodeId> order;
  std::vector<NodeId> cycle;
};

Ordering order_ops(const WaitGraph& graph, const std::vector<NodeId>& previous);

}  // namespace gradwire::proof

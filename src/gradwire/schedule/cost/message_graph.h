#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule/program_set.h"

namespace gradwire::schedule {

/// Ops of some ranks, their dependencies and their matched messages: the input of LinkModel. Holds
/// all ranks of a schedule, or ranks that represent others.
class MessageGraph {
 public:
  /// Index of an op, in the order in which programs were added.
  using Number = NodeId;

  struct Op {
    OpKind kind = OpKind::copy;
    Number rank = 0;           ///< Index of its program among those added.
    Number partner = kNoNode;  ///< Other end of a message.
    Rank peer = -1;            ///< Messages: the schedule's rank at the other end.
  };
  /// A dependency between ops: on the whole of an op, or byte by byte (flows_through()).
  struct Arrow {
    Number to = 0;
    bool whole = false;
  };

  MessageGraph() = default;
  /// All ranks; `partner` is the result of match_messages().
  MessageGraph(const ProgramSet& programs, const std::vector<NodeId>& partner);

  /// Appends a program; returns the index of its first op.
  Number add(const Program& program, Number rank);
  void match(Number send, Number receive);
  /// Call after all ops were added and all messages matched.
  void connect();

  Number size() const { return static_cast<Number>(ops_.size()); }
  Number ranks() const { return ranks_; }
  /// Hops on the longest chain of dependent messages.
  std::uint32_t longest_chain() const { return longest_chain_; }
  const Op& op(Number number) const { return ops_[number]; }
  /// The ops that depend on an op, and those that it depends on. A receive's matching send is not
  /// among them.
  std::span<const Arrow> successors(Number op) const {
    return slice(successors_, successors_first_, op);
  }
  std::span<const Arrow> predecessors(Number op) const {
    return slice(predecessors_, predecessors_first_, op);
  }

 private:
  static std::span<const Arrow> slice(const std::vector<Arrow>& arrows,
                                      const std::vector<Number>& first, Number op) {
    return std::span(arrows).subspan(first[op], first[op + 1] - first[op]);
  }

  std::uint32_t count_longest_chain() const;

  std::vector<Op> ops_;
  std::vector<Arrow> predecessors_, successors_;
  std::vector<Number> predecessors_first_{0}, successors_first_;
  Number ranks_ = 0;
  std::uint32_t longest_chain_ = 0;
};

}  // namespace gradwire::schedule

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule/program_set.h"

namespace gradwire {

/// Ops of some ranks, what each waits for, and which exchange messages with each other: what the
/// link model plays through. All ranks of a schedule, or one that stands for others.
class MessageGraph {
 public:
  /// Of an op, in the order in which programs were added.
  using Number = NodeId;

  struct Op {
    OpKind kind = OpKind::copy;
    Number rank = 0;           ///< Among those that were added.
    Number partner = kNoNode;  ///< The other end of a message.
  };
  /// An op that waits for another: for all of it, or piece by piece (flows_through()).
  struct Arrow {
    Number to = 0;
    bool whole = false;
  };

  MessageGraph() = default;
  /// All ranks; `partner` as match_messages() has it.
  MessageGraph(const ProgramSet& programs, const std::vector<NodeId>& partner);

  /// Appends a program; returns the number of its first op.
  Number add(const Program& program, Number rank);
  void match(Number send, Number receive);
  /// To be called once all ops are there.
  void connect();

  Number size() const { return static_cast<Number>(ops_.size()); }
  Number ranks() const { return ranks_; }
  const Op& op(Number number) const { return ops_[number]; }
  /// What waits for an op, and the other way round; that a receive waits for its message apart.
  std::span<const Arrow> behind(Number op) const { return slice(behind_, behind_first_, op); }
  std::span<const Arrow> before(Number op) const { return slice(before_, before_first_, op); }

 private:
  static std::span<const Arrow> slice(const std::vector<Arrow>& arrows,
                                      const std::vector<Number>& first, Number op) {
    return std::span(arrows).subspan(first[op], first[op + 1] - first[op]);
  }

  std::vector<Op> ops_;
  std::vector<Arrow> before_, behind_;
  std::vector<Number> before_first_{0}, behind_first_;
  Number ranks_ = 0;
};

}  // namespace gradwire

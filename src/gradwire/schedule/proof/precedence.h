#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule/proof/wait_graph.h"

namespace gradwire::proof {

/// Which of one rank's ops happen before which ops of all ranks, along any path of dependencies and
/// messages. An op works through its bytes in order, and comes before another in one of two ways:
///
///   whole      all of it is done before the other begins
///   bytewise   its byte n is done before the other's byte n begins
///
/// A path of bytewise arrows is bytewise: each arrow joins ops on slices of the same length
/// (flows_through asks for the same slice, matched messages have one length), so byte n means the
/// same all along it. A path with a whole arrow a => b in it is whole: everything up to and
/// including a has finished each byte of a, so all of a, before b begins its first.
///
/// Two ops that touch the same slice, one of them writing, are in order if one comes before the
/// other bytewise: byte n of the slice is touched by byte n of each. Where slices overlap in any
/// other way, only whole will do.
class Precedence {
 public:
  /// `order` is that of order_ops. Time: arrows of the graph x ops of `rank` / 64.
  Precedence(const ProgramSet& programs, const WaitGraph& graph, std::span<const NodeId> order,
             Rank rank);

  /// Whether op `earlier` of the rank comes before `later`, in either way.
  bool bytewise(OpIndex earlier, NodeId later) const { return bit(later, 0, earlier); }
  bool whole(OpIndex earlier, NodeId later) const { return bit(later, 1, earlier); }

  /// Whether any op of the rank comes before `later`.
  bool any(NodeId later) const;

 private:
  // Per node two sets of the rank's ops: those before it in either way, and those wholly before it.
  using Words = std::span<std::uint64_t>;
  Words set(NodeId node, std::size_t which) {
    return Words(bits_).subspan((2 * node + which) * words_, words_);
  }
  bool bit(NodeId node, std::size_t which, OpIndex op) const {
    return (bits_[(2 * node + which) * words_ + op / 64] >> (op % 64) & 1) != 0;
  }
  void follow(const Arrow& arrow, NodeId node);

  const ProgramSet& programs_;
  Rank rank_;
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace gradwire::proof

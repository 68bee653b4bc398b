#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule/verify/verifier.h"
#include "gradwire/schedule/verify/wait_graph.h"

namespace gradwire::schedule::proof {

/// Which of one rank's ops happen before which ops of all ranks, along any path of dependencies and
/// messages. An op processes its bytes in order, and precedes another op in one of two ways:
///
///   whole      it is complete before the other begins
///   bytewise   its byte n is complete before the other's byte n begins
///
/// A path of bytewise arrows is bytewise. Each arrow joins ops on slices of the same length
/// (flows_through requires the same slice, matched messages have one length), so byte n means the
/// same along the whole path. A path with a whole arrow a => b is whole: all ops up to a, and thus
/// all bytes of a, are complete before b begins its first byte.
///
/// Two ops that access the same slice, at least one of them writing, are ordered if one precedes
/// the other bytewise: each accesses byte n of the slice with its own byte n. Where slices overlap
/// in any other way, only whole precedence orders them.
class Precedence {
 public:
  /// `order` is the result of order_ops(). Running time: arrows of the graph x ops of `rank` / 64.
  Precedence(const ProgramSet& programs, const WaitGraph& graph, std::span<const NodeId> order,
             Rank rank);

  /// bytewise(): returns true if op `earlier` of the rank precedes `later` in either way; whole():
  /// only if all of it does.
  bool bytewise(OpIndex earlier, NodeId later) const { return bit(later, 0, earlier); }
  bool whole(OpIndex earlier, NodeId later) const { return bit(later, 1, earlier); }

  /// Returns true if any op of the rank precedes `later`.
  bool any(NodeId later) const;

 private:
  // Two sets of the rank's ops per node: those that precede it in either way, and those that
  // precede it as a whole.
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

/// Checks that any two ops of the rank that access the same memory, at least one of them writing,
/// are ordered.
MaybeViolation check_races(const ProgramSet& programs, const Precedence& precedence, Rank rank);

/// Checks that the dependencies of each receive of the rank have happened before the matching send,
/// byte by byte where the dependency is byte by byte. Then all other ops ordered before the receive
/// have happened too, since order follows from those dependencies or from the message itself.
MaybeViolation check_receives(const ProgramSet& programs, const std::vector<NodeId>& partner,
                              const Precedence& precedence, Rank rank);

}  // namespace gradwire::schedule::proof

#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// An op of any rank.
struct OpRef {
  Rank rank = 0;
  OpIndex op = 0;

  bool operator==(const OpRef&) const = default;
};

/// Number of an op among those of all ranks: rank 0's in order, then rank 1's, ...
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = static_cast<NodeId>(-1);

/// The programs of all ranks side by side: what verifier, cost and drawing look at.
class ProgramSet {
 public:
  explicit ProgramSet(Schedule schedule);

  const Schedule& schedule() const { return schedule_; }
  int ranks() const { return schedule_.ranks; }

  /// Ops of all ranks together.
  NodeId size() const { return static_cast<NodeId>(refs_.size()); }

  const Program& program(Rank rank) const { return programs_[static_cast<std::size_t>(rank)]; }
  NodeId node(Rank rank, OpIndex op) const { return first_[static_cast<std::size_t>(rank)] + op; }
  NodeId node(OpRef ref) const { return node(ref.rank, ref.op); }
  OpRef ref(NodeId node) const { return refs_[node]; }
  const Op& op(NodeId node) const { return program(refs_[node].rank).ops[refs_[node].op]; }

 private:
  Schedule schedule_;
  std::vector<Program> programs_;
  std::vector<NodeId> first_;
  std::vector<OpRef> refs_;
};

/// For every op the one that it exchanges its message with: the k-th send of rank a to rank b and
/// the k-th receive of b from a. kNoNode for local ops, and for those that nobody answers.
std::vector<NodeId> match_messages(const ProgramSet& programs);

/// Chunks that a buffer has on a rank, whose program is `program` (CollectiveSpec's table), or
/// scratch slots.
std::uint32_t chunks_of(const Schedule& schedule, Rank rank, const Program& program, Buffer buffer);

bool sends(const Op& op);
bool receives(const Op& op);

/// A slice with the rank and program that it belongs to.
struct PlacedSlice {
  Rank rank;
  const Program& program;
  const Slice& slice;
};

/// Whether two slices are as long as each other whatever the element count. Where each rank has a
/// part (has_parts), all chunks are as large, except in all_to_all: there input[b] of rank a is
/// only as large as output[a] of rank b. Elsewhere a chunk is only as large as itself.
bool same_length(const Schedule& schedule, const PlacedSlice& a, const PlacedSlice& b);

/// What travels, or is written: src of a send, dst of all others.
const Slice& extent(const Op& op);

/// What the longest message has of all chunks together, if they are equal: 1 / P in a ring.
double largest_message(const ProgramSet& programs);

}  // namespace gradwire

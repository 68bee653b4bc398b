#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::schedule {

/// Identifies an op of any rank.
struct OpRef {
  Rank rank = 0;
  OpIndex op = 0;

  bool operator==(const OpRef&) const = default;
};

/// Index of an op among those of all ranks: rank 0's in order, then rank 1's, ...
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = static_cast<NodeId>(-1);

/// The programs of all ranks: the input of verifier, cost model and drawing.
class ProgramSet {
 public:
  explicit ProgramSet(Schedule schedule);

  const Schedule& schedule() const { return schedule_; }
  int ranks() const { return schedule_.ranks; }

  /// Number of ops of all ranks.
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

/// Returns for each op the other end of its message: the k-th send of rank a to rank b matches the
/// k-th receive of b from a. kNoNode for local ops and for unmatched sends and receives.
std::vector<NodeId> match_messages(const ProgramSet& programs);

/// Returns the number of chunks of a buffer (CollectiveSpec's table), or of scratch slots, on a
/// rank whose program is `program`.
std::uint32_t chunks_of(const Schedule& schedule, Rank rank, const Program& program, Buffer buffer);

bool sends(const Op& op);
bool receives(const Op& op);

/// A slice with its rank and program.
struct PlacedSlice {
  Rank rank;
  const Program& program;
  const Slice& slice;
};

/// Returns true if two slices have equal length for every element count. Where each rank has a part
/// (has_parts), all chunks are equally large, except in all_to_all: there input[b] of rank a only
/// equals output[a] of rank b. Elsewhere a chunk only equals itself.
bool same_length(const Schedule& schedule, const PlacedSlice& a, const PlacedSlice& b);

/// The slice that is sent or written: src of a send, dst of all other ops.
const Slice& extent(const Op& op);

}  // namespace gradwire::schedule

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/schedule/schedule.h"

/// Shorthands for slices that all algorithms use.
namespace gradwire::schedule {

/// Chunks are often numbered like ranks, so these take ints.
inline Slice input(int first, int count = 1) {
  return {Buffer::input, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
}

inline Slice output(int first, int count = 1) {
  return {Buffer::output, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
}

/// Chunks `first` to `first + count - 1` of a slice, relative to its beginning.
inline Slice part_of(const Slice& slice, int first, int count = 1) {
  return {slice.buffer, slice.first + static_cast<std::uint32_t>(first),
          static_cast<std::uint32_t>(count)};
}

/// All ranks but `rank`, starting with the next one. If all ranks send in this order, no two send
/// to the same receiver at the same time.
inline std::vector<Rank> others_from(Rank rank, int ranks) {
  std::vector<Rank> others;
  for (int distance = 1; distance < ranks; ++distance) others.push_back((rank + distance) % ranks);
  return others;
}

/// Assignment of chunks to the ranks that reduce them. Rank r owns the chunks from first[r] up to,
/// but not including, first[r + 1]; possibly none.
struct Owners {
  std::vector<std::uint32_t> first;

  /// Rank r owns counts[r] chunks.
  static Owners of_counts(const std::vector<std::uint32_t>& counts);

  int ranks() const { return static_cast<int>(first.size()) - 1; }
  std::uint32_t chunks() const { return first.back(); }
  int begin(Rank rank) const { return static_cast<int>(first[static_cast<std::size_t>(rank)]); }
  int count(Rank rank) const { return begin(rank + 1) - begin(rank); }
};

/// An all-reduce in two hops: every rank sends each owner its part of the input; each owner reduces
/// the contributions and sends the result to all (direct.cpp).
Schedule all_reduce_at_owners(const Owners& owners, std::string name);

}  // namespace gradwire::schedule

/// Reductions of several ranks' contributions. They arrive in any order but are reduced in a fixed
/// order, so every run gets the same bits.
namespace gradwire::schedule {

/// sum = ((own + first peer's) + second peer's) + ..., for a sum that only this rank computes. The
/// first peer's contribution is reduced as it arrives; the others arrive in scratch. Returns the op
/// that completes the sum. Returns nullopt without peers: the sum is then `own`, and `sum` is not
/// written.
std::optional<OpIndex> reduce_from(ProgramBuilder& builder, std::span<const Rank> peers, Slice own,
                                   Slice sum);

/// Reduces as reduce_from() does, but copies `own` if there are no peers.
OpIndex reduce_or_copy(ProgramBuilder& builder, std::span<const Rank> peers, Slice own, Slice sum);

/// A peer's contribution in `held`, complete after op `ready`. Its scratch may be overwritten.
struct Contribution {
  Slice held;
  OpIndex ready = 0;
};

/// Receives a contribution from `peer` into scratch as large as `like`, a slice of data.
Contribution receive_to_scratch(ProgramBuilder& builder, Rank peer, Slice like);

/// Contributions of the ranks below and above this one, each in rank order.
struct Contributions {
  std::vector<Contribution> lower;
  std::vector<Contribution> upper;
};

/// result = ((lower[0] + lower[1] + ...) + result) + upper[0] + ..., where `result` holds this
/// rank's own contribution once op `own` is complete. All ranks that compute this sum get the same
/// bits. `result` is not modified before the ops in `leaving`, which send its old content, are
/// complete. Returns the op that completes the sum; the caller may apply postscale() to it.
OpIndex reduce_in_rank_order(ProgramBuilder& builder, Slice result, OpIndex own,
                             const Contributions& others, const std::vector<OpIndex>& leaving = {});

}  // namespace gradwire::schedule

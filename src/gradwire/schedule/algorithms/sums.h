#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradwire/schedule/schedule.h"

/// Reductions of several ranks' contributions. They arrive in any order but are reduced in a fixed
/// order, so every run gets the same bits.
namespace gradwire {

/// sum = ((own + first peer's) + second peer's) + ..., for a sum that only this rank computes. The
/// first peer's contribution is reduced as it arrives; the others arrive in scratch. Returns the op
/// that completes the sum. Returns nullopt without peers: the sum is then `own`, and `sum` is not
/// written.
std::optional<OpIndex> reduce_from(ProgramBuilder& builder, std::span<const Rank> peers, Slice own,
                                   Slice sum);

/// As reduce_from(), but copies `own` if there are no peers.
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

}  // namespace gradwire

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradwire/schedule/schedule.h"

/// Sums of what several ranks send. Contributions arrive in any order but are always added in the
/// same one, so that every run gets the same bits.
namespace gradwire {

/// sum = ((own + first peer's) + second peer's) + ..., for a sum that nobody else computes. What
/// the first peer sends is added as it comes; the others' must wait in scratch. Returns the op that
/// completes it; none without peers: then the sum is `own`, and nothing is in `sum`.
std::optional<OpIndex> reduce_from(ProgramBuilder& builder, std::span<const Rank> peers, Slice own,
                                   Slice sum);

/// The same, but without peers copies `own`.
OpIndex reduce_or_copy(ProgramBuilder& builder, std::span<const Rank> peers, Slice own, Slice sum);

/// What somebody else adds: there once `ready` is done. Its scratch may be overwritten.
struct Contribution {
  Slice held;
  OpIndex ready = 0;
};

/// Receives from `peer` into scratch as large as `like`, a slice of data.
Contribution receive_aside(ProgramBuilder& builder, Rank peer, Slice like);

/// Contributions of those that come before this rank, and of those after it, each in their order.
struct Contributions {
  std::vector<Contribution> lower;
  std::vector<Contribution> upper;
};

/// result = ((lower[0] + lower[1] + ...) + result) + upper[0] + ..., where `result` holds this
/// rank's own contribution once `own` is done: what several ranks compute to the same bits.
/// Begins to change `result` only after `leaving` too: sends of what it holds. Returns the op that
/// completes it, for which the caller may want finish().
OpIndex add_in_order(ProgramBuilder& builder, Slice result, OpIndex own,
                     const Contributions& others, const std::vector<OpIndex>& leaving = {});

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "gradwire/base/element.h"
#include "gradwire/base/types.h"

/// Argument checks of the operations of a Communicator. All of them throw
/// Exception(invalid_argument), which states the value found and the value expected.
namespace gradwire {

/// Checks that `rank` is within 0 .. ranks - 1. `what` is "root" or "peer".
void check_rank(Rank rank, int ranks, std::string_view what);

/// Checks the peer and the tag of a message.
void check_message(Rank peer, int ranks, int tag);

/// Checks that `ranks` are ranks of a communicator of `size`, none of them twice, and that `self`
/// is among them. Returns its index.
Rank check_subgroup(std::span<const Rank> ranks, Rank self, int size);

/// Checks that `tag` is within 0 .. 2^30 - 1.
void check_tag(int tag);

inline constexpr int kMaxLane = (1 << 30) - 1;

/// Checks that `lane` is within 0 .. kMaxLane.
void check_lane(int lane);

/// Throws Exception(unsupported) if the domain has messages only; `operation` is what needs more.
void check_domain(FailureDomain domain, std::string_view operation);

/// Checks that `whole` is `ranks` times `part`, with the same element type.
void check_parts(std::string_view operation, int ranks, std::size_t part, DataType part_type,
                 std::size_t whole, DataType whole_type);

/// Checks that `counts` has one entry per rank and that its sum is `count`. `side` is "input" or
/// "output".
void check_splits(std::string_view side, int ranks, std::span<const std::size_t> counts,
                  std::size_t count);

/// Checks combines(type, op).
void check_reduction(DataType type, ReduceOp op);

void check_same_type(std::string_view operation, DataType input, DataType output);

}  // namespace gradwire

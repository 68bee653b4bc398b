#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "gradwire/base/element.h"
#include "gradwire/base/types.h"

/// What the operations of a Communicator accept. All throw Exception(invalid_argument) that says
/// what was given and what is asked for.
namespace gradwire {

/// `what` is "root" or "peer".
void check_rank(Rank rank, int ranks, std::string_view what);

/// The other end and tag of a message of rank `self`.
void check_message(Rank peer, Rank self, int ranks, int tag);

/// 0 .. 2^30 - 1.
void check_tag(int tag);

inline constexpr int kMaxLane = (1 << 30) - 1;

/// 0 .. kMaxLane.
void check_lane(int lane);

/// `whole` is `ranks` times `part`, of the same type.
void check_parts(std::string_view operation, int ranks, std::size_t part, DataType part_type,
                 std::size_t whole, DataType whole_type);

/// `counts` has one entry a rank and adds up to `count`; `side` is "input" or "output".
void check_splits(std::string_view side, int ranks, std::span<const std::size_t> counts,
                  std::size_t count);

/// combines(type, op).
void check_reduction(DataType type, ReduceOp op);

void check_same_type(std::string_view operation, DataType input, DataType output);

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::checkpoint {

/// Consecutive elements of a tensor held by one rank.
struct HeldPiece {
  int rank = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Plans which rank writes which elements of a tensor. Each element is written once, and all ranks
/// write about the same number of bytes. Elements that several ranks hold are divided evenly among
/// those ranks, except small ranges.
///
/// `held`: the pieces of all ranks, in any order; they may overlap. `load`: bytes assigned to each
/// rank so far; updated. Returns the pieces in the order of elements; the result is the same on
/// every rank. Throws Exception(invalid_argument), which names the tensor, if no rank holds some
/// element, or a piece exceeds `elements`.
std::vector<HeldPiece> plan_pieces(const std::string& name, std::int64_t elements,
                                   std::size_t element_bytes, const std::vector<HeldPiece>& held,
                                   std::vector<std::uint64_t>& load);

}  // namespace gradwire::checkpoint

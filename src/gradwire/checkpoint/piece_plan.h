#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire {

/// Consecutive elements of a tensor that a rank has.
struct HeldPiece {
  int rank = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Who writes which elements of a tensor, so that each is written once and all ranks write about as
/// many bytes: elements that several ranks hold are divided evenly among those, if there are more
/// than a few. `held`: of all ranks, in any order, overlapping or not. `load`: bytes that each rank
/// has been given so far; updated. The pieces are in the order of elements. The same on every rank
/// that asks. Throws Exception(invalid_argument) that names the tensor if no rank holds some
/// element, or a piece goes beyond `elements`.
std::vector<HeldPiece> plan_pieces(const std::string& name, std::int64_t elements,
                                   std::size_t element_bytes, const std::vector<HeldPiece>& held,
                                   std::vector<std::uint64_t>& load);

}  // namespace gradwire

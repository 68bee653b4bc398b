#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire {

/// Elements `begin` to `end` of a bucket.
struct CodedRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

/// Elements of a bucket that are coded and travel on their own, and whose mean each rank makes:
/// part r is rank r's. Parts are in order; all but the last that is not empty have the same size.
struct CodedPieceLayout {
  CodedRange all;
  std::vector<CodedRange> parts;
};

/// Cuts `count` elements into pieces of about `piece_elements`, and those into a part for each
/// rank. Parts are multiples of 4096 elements, so that codecs have whole blocks, or of a smaller
/// power of two where ranks would get too unequal ones.
std::vector<CodedPieceLayout> cut_for_coding(std::size_t count, std::size_t piece_elements,
                                             int ranks);

/// The same for `ranks` equal parts of which part r of each piece is a range of the r-th: a piece
/// has ranges of about piece_elements / ranks in all of them, so that `all` is what it lies in,
/// with others' elements. `count` is a multiple of `ranks`.
std::vector<CodedPieceLayout> cut_for_owners(std::size_t count, std::size_t piece_elements,
                                             int ranks);

}  // namespace gradwire

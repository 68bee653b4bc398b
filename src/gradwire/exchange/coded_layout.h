#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::exchange {

/// Elements `begin` to `end` of a unit.
struct CodedRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

/// Elements of a unit that are coded and sent independently of the others. Rank r owns part r and
/// computes its mean. Parts are in order; all but the last non-empty one have the same size.
struct CodedPieceLayout {
  CodedRange all;
  std::vector<CodedRange> parts;
};

/// Cuts `count` elements into pieces of about `piece_elements`, and each piece into one part per
/// rank. Parts are multiples of 4096 elements, so that codecs have whole blocks; a smaller power of
/// two is used where parts would differ too much in size.
std::vector<CodedPieceLayout> cut_into_pieces(std::size_t count, std::size_t piece_elements,
                                              int ranks);

/// Cuts as cut_into_pieces() does, for a unit of `ranks` equal parts, where part r of each piece is
/// a range of the unit's part r. A piece has a range of about piece_elements / ranks in each of
/// them, so `all` spans the piece and elements of other pieces. `count` is a multiple of `ranks`.
std::vector<CodedPieceLayout> cut_shards_into_pieces(std::size_t count, std::size_t piece_elements,
                                                     int ranks);

}  // namespace gradwire::exchange

#include "gradwire/exchange/coded_layout.h"

#include <algorithm>

namespace gradwire::exchange {
namespace {

constexpr std::size_t kLargestBlock = 4096;
constexpr std::size_t kSmallestBlock = 64;

/// Minimum blocks per part, if possible; the last part may have one less.
constexpr std::size_t kBlocksPerPart = 16;

std::size_t rounded_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

std::size_t part_size(std::size_t count, std::size_t ranks) {
  const std::size_t even = (count + ranks - 1) / ranks;
  std::size_t block = kLargestBlock;
  while (block > kSmallestBlock && even < block * kBlocksPerPart) block /= 2;
  return rounded_up(even, block);
}

CodedPieceLayout cut_piece(CodedRange all, std::size_t ranks) {
  CodedPieceLayout piece{all, {}};
  const std::size_t size = part_size(all.count(), ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    piece.parts.push_back(
        {std::min(all.begin + r * size, all.end), std::min(all.begin + (r + 1) * size, all.end)});
  }
  return piece;
}

}  // namespace

std::vector<CodedPieceLayout> cut_into_pieces(std::size_t count, std::size_t piece_elements,
                                              int ranks) {
  std::vector<CodedPieceLayout> pieces;
  if (count == 0) return pieces;
  const std::size_t max_elements = std::max<std::size_t>(piece_elements, 1);
  const std::size_t number = (count + max_elements - 1) / max_elements;
  const std::size_t size = rounded_up((count + number - 1) / number, kSmallestBlock);
  for (std::size_t begin = 0; begin < count; begin += size) {
    pieces.push_back(
        cut_piece({begin, std::min(begin + size, count)}, static_cast<std::size_t>(ranks)));
  }
  return pieces;
}

std::vector<CodedPieceLayout> cut_shards_into_pieces(std::size_t count, std::size_t piece_elements,
                                                     int ranks) {
  const std::size_t shard = count / static_cast<std::size_t>(ranks);
  std::vector<CodedPieceLayout> pieces;
  for (const CodedPieceLayout& of_shard :
       cut_into_pieces(shard, piece_elements / static_cast<std::size_t>(ranks), 1)) {
    CodedPieceLayout& piece = pieces.emplace_back();
    for (std::size_t begin = 0; begin < count; begin += shard) {
      piece.parts.push_back({begin + of_shard.all.begin, begin + of_shard.all.end});
    }
    piece.all = {piece.parts.front().begin, piece.parts.back().end};
  }
  return pieces;
}

}  // namespace gradwire::exchange

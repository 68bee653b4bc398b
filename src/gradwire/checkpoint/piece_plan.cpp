#include "gradwire/checkpoint/piece_plan.h"

#include <algorithm>

#include "gradwire/base/refuse.h"

namespace gradwire::checkpoint {
namespace {

constexpr std::uint64_t kMinBytesToDivide = 16 << 10;  // Below, one rank writes it all.

/// Elements held by the same set of ranks.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<int> ranks;  ///< Ascending, without duplicates.
};

std::vector<std::int64_t> cuts_of(const std::vector<HeldPiece>& held, std::int64_t elements) {
  std::vector<std::int64_t> cuts{0, elements};
  for (const auto& piece : held) {
    cuts.push_back(piece.begin);
    cuts.push_back(piece.begin + piece.count);
  }
  std::ranges::sort(cuts);
  const auto twice = std::ranges::unique(cuts);
  cuts.erase(twice.begin(), twice.end());
  return cuts;
}

std::vector<int> holders_of(const std::vector<HeldPiece>& held, std::int64_t begin,
                            std::int64_t end) {
  std::vector<int> ranks;
  for (const auto& piece : held) {
    if (piece.begin <= begin && end <= piece.begin + piece.count) ranks.push_back(piece.rank);
  }
  std::ranges::sort(ranks);
  const auto twice = std::ranges::unique(ranks);
  ranks.erase(twice.begin(), twice.end());
  return ranks;
}

std::vector<Segment> segments_of(const std::string& name, std::int64_t elements,
                                 const std::vector<HeldPiece>& held) {
  const auto cuts = cuts_of(held, elements);
  std::vector<Segment> segments;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    auto ranks = holders_of(held, cuts[i], cuts[i + 1]);
    if (ranks.empty()) {
      refuse("checkpoint: no rank holds elements {} to {} of '{}'", cuts[i], cuts[i + 1] - 1, name);
    }
    segments.push_back({cuts[i], cuts[i + 1], std::move(ranks)});
  }
  return segments;
}

int least_loaded(const std::vector<int>& ranks, const std::vector<std::uint64_t>& load) {
  return *std::ranges::min_element(
      ranks, {}, [&load](int rank) { return load[static_cast<std::size_t>(rank)]; });
}

}  // namespace

std::vector<HeldPiece> plan_pieces(const std::string& name, std::int64_t elements,
                                   std::size_t element_bytes, const std::vector<HeldPiece>& held,
                                   std::vector<std::uint64_t>& load) {
  std::vector<HeldPiece> planned;
  const auto give = [&](int rank, std::int64_t begin, std::int64_t end) {
    planned.push_back({rank, begin, end - begin});
    load[static_cast<std::size_t>(rank)] += static_cast<std::uint64_t>(end - begin) * element_bytes;
  };
  for (const auto& piece : held) {
    if (piece.begin >= 0 && piece.count >= 0 && piece.begin + piece.count <= elements) continue;
    refuse("checkpoint: rank {} holds elements {} to {} of '{}', which has {} elements", piece.rank,
           piece.begin, piece.begin + piece.count - 1, name, elements);
  }
  if (elements == 0) {
    give(held.empty() ? 0 : held.front().rank, 0, 0);
    return planned;
  }
  for (const auto& [begin, end, ranks] : segments_of(name, elements, held)) {
    const auto bytes = static_cast<std::uint64_t>(end - begin) * element_bytes;
    if (ranks.size() == 1 || bytes < kMinBytesToDivide) {
      give(least_loaded(ranks, load), begin, end);
      continue;
    }
    const auto parts = static_cast<std::int64_t>(ranks.size());
    for (std::int64_t i = 0; i < parts; ++i) {
      give(ranks[static_cast<std::size_t>(i)], begin + (end - begin) * i / parts,
           begin + (end - begin) * (i + 1) / parts);
    }
  }
  return planned;
}

}  // namespace gradwire::checkpoint

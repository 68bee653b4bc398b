#include "gradwire/plan/simulate/ring_path.h"

#include <algorithm>
#include <cstddef>

namespace gradwire {
namespace {

/// Prefix sums of moves over consecutive links.
class Moves {
 public:
  Moves(const std::vector<RingLink>& links, double segment_bytes) : sums_{0} {
    for (int round = 0; round < 2; ++round) {
      for (const RingLink& link : links)
        sums_.push_back(sums_.back() + segment_bytes / link.bytes_per_second + link.latency);
    }
    ranks_ = links.size();
  }

  /// Returns the longest run of `count` moves that includes link `through`.
  double longest(std::size_t count, std::size_t through) const {
    const std::size_t rounds = count / ranks_, rest = count % ranks_;
    const double whole = static_cast<double>(rounds) * sums_[ranks_];
    if (rest == 0) return whole;
    double best = 0;
    // A run of a full round includes every link.
    const std::size_t first = rounds > 0 ? 0 : through + ranks_ - rest + 1;
    const std::size_t last = rounds > 0 ? ranks_ - 1 : through + ranks_;
    for (std::size_t begin = first; begin <= last; ++begin) {
      const std::size_t at = begin % ranks_;
      best = std::max(best, sums_[at + rest] - sums_[at]);
    }
    return whole + best;
  }

 private:
  std::vector<double> sums_;
  std::size_t ranks_ = 0;
};

}  // namespace

double ring_time(const std::vector<RingLink>& links, int hops, double chunk_bytes,
                 double segments) {
  if (hops <= 0) return 0;
  const auto slowest = std::ranges::min_element(links, {}, &RingLink::bytes_per_second);
  const auto at = static_cast<std::size_t>(slowest - links.begin());
  const double chunk = chunk_bytes / slowest->bytes_per_second;
  const double other_segments = chunk * (segments - 1) / segments;
  const Moves moves(links, chunk_bytes / segments);
  const auto all = static_cast<std::size_t>(hops);
  std::vector<std::size_t> counts{1, all};
  for (std::size_t rounds = links.size(); rounds < all; rounds += links.size())
    counts.insert(counts.end(), {rounds, rounds + 1});
  double longest = 0;
  for (const std::size_t count : counts) {
    const double staying = static_cast<double>(all - count) * chunk;
    longest = std::max(longest, staying + moves.longest(count, at) + other_segments);
  }
  return longest;
}

}  // namespace gradwire

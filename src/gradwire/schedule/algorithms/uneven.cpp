#include "gradwire/schedule/algorithms/uneven.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// The direct all-reduce with unequal shares. The owner of a share w of the data G receives
/// (P-1) w G and then sends the result P-1 times. Each other rank sends its part of the share and
/// receives the result once. So a rank with share w sends, and receives,
///
///     (P-1) w G + (1-w) G = (1 + (P-2) w) G
///
/// and ranks with slow ports should own little or nothing. 4 ranks, one of them with half the
/// others' bandwidth B, take 2 G/B if the other three own a third each, but 3 G/B as a ring, in
/// which every rank sends 3/2 G.
///
/// No all-reduce is faster than the maximum of G/B_i (each rank must send its data, alone or as
/// part of a sum) and 2(P-1) G / (sum of B_i) (each byte of the data is sent P-1 times to be
/// reduced, and P-1 times as the result). The optimal shares reach that bound.
namespace gradwire::schedule {
namespace {

/// Maximum number of chunks, which limits how fine shares are.
constexpr std::uint32_t kMaxChunks = 256;

/// Minimum relative time that finer shares must save.
constexpr double kWorthIt = 0.005;

std::vector<double> bandwidths_of(const topology::Topology& topology) {
  std::vector<double> bandwidths;
  for (Rank rank = 0; rank < topology.ranks(); ++rank) {
    const auto sharing = static_cast<double>(topology.ranks_on(topology.host_of(rank)).size());
    bandwidths.push_back(topology.port(rank).bytes_per_second / sharing);
  }
  return bandwidths;
}

/// Sum of the largest shares with which every rank is done after `time`:
/// w_i <= (B_i time - 1) / (P-2).
double total_share(const std::vector<double>& bandwidths, double time) {
  double total = 0;
  for (double bandwidth : bandwidths) total += std::max(0.0, bandwidth * time - 1);
  return total / static_cast<double>(bandwidths.size() - 2);
}

/// Integers in proportion to `shares` that add up to `chunks`: each share rounded down, then one
/// more for the largest remainders.
std::vector<std::uint32_t> rounded(const std::vector<double>& shares, std::uint32_t chunks) {
  std::vector<std::uint32_t> counts;
  for (double share : shares) counts.push_back(static_cast<std::uint32_t>(share * chunks));
  std::vector<std::size_t> by_loss(shares.size());
  std::iota(by_loss.begin(), by_loss.end(), std::size_t{0});
  std::ranges::stable_sort(by_loss, std::greater{},
                           [&](std::size_t i) { return shares[i] * chunks - counts[i]; });
  const std::uint32_t given = std::accumulate(counts.begin(), counts.end(), 0u);
  for (std::size_t i = 0; i < chunks - given; ++i) ++counts[by_loss[i % by_loss.size()]];
  return counts;
}

/// Time that each rank sends, and receives, given its share of the data.
std::vector<double> times_of(const std::vector<double>& shares,
                             const std::vector<double>& bandwidths) {
  const auto others_of_two = static_cast<double>(shares.size()) - 2;
  std::vector<double> times;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    times.push_back((1 + others_of_two * shares[i]) / bandwidths[i]);
  }
  return times;
}

/// Cost of a division into whole chunks: the longest time, plus the maximum time by which any rank
/// is busy for longer than with the optimal shares. The second matters too: idle time absorbs
/// delays of others.
double cost_of(const std::vector<std::uint32_t>& counts, const std::vector<double>& bandwidths,
               const std::vector<double>& best_times) {
  const double chunks = std::accumulate(counts.begin(), counts.end(), 0u);
  std::vector<double> shares;
  for (std::uint32_t count : counts) shares.push_back(count / chunks);
  const std::vector<double> times = times_of(shares, bandwidths);
  double excess = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    excess = std::max(excess, times[i] - best_times[i]);
  }
  return std::ranges::max(times) + excess;
}

}  // namespace

std::vector<double> uneven_shares(const std::vector<double>& bandwidths) {
  const std::size_t ranks = bandwidths.size();
  // With two ranks any shares take the same time: 1 + (P-2) w = 1.
  if (ranks <= 2) return std::vector<double>(ranks, 1.0 / static_cast<double>(ranks));
  const double slowest = std::ranges::min(bandwidths);
  double too_short = 0;
  double time = static_cast<double>(ranks) / slowest;  // Enough even if one rank owned all data.
  while (time - too_short > 1e-12 * time) {
    const double middle = (time + too_short) / 2;
    (total_share(bandwidths, middle) < 1 ? too_short : time) = middle;
  }
  // No rank is done before its own data is sent.
  time = std::max(time, 1 / slowest);
  const double total = total_share(bandwidths, time);
  std::vector<double> shares;
  for (double bandwidth : bandwidths) {
    shares.push_back(std::max(0.0, bandwidth * time - 1) / static_cast<double>(ranks - 2) / total);
  }
  return shares;
}

std::vector<std::uint32_t> uneven_counts(const std::vector<double>& bandwidths) {
  const std::vector<double> shares = uneven_shares(bandwidths);
  const std::vector<double> best_times = times_of(shares, bandwidths);
  const auto ranks = static_cast<std::uint32_t>(bandwidths.size());
  std::vector<std::uint32_t> best = rounded(shares, 1);
  double best_cost = cost_of(best, bandwidths, best_times);
  for (std::uint32_t chunks = 2; chunks <= std::max(kMaxChunks, ranks); ++chunks) {
    std::vector<std::uint32_t> counts = rounded(shares, chunks);
    const double cost = cost_of(counts, bandwidths, best_times);
    if (cost >= (1 - kWorthIt) * best_cost) continue;
    best = std::move(counts);
    best_cost = cost;
  }
  return best;
}

double all_reduce_bound(const std::vector<double>& bandwidths) {
  const double sum = std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
  const auto hops = 2 * static_cast<double>(bandwidths.size() - 1);
  return bandwidths.size() < 2 ? 0 : std::max(1 / std::ranges::min(bandwidths), hops / sum);
}

Schedule uneven_all_reduce(const topology::Topology& topology) {
  return all_reduce_at_owners(Owners::of_counts(uneven_counts(bandwidths_of(topology))), "uneven");
}

}  // namespace gradwire::schedule

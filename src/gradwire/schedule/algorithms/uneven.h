#pragma once

#include <cstdint>
#include <vector>

/// Optimal division of an all-reduce's work among ranks with unequal ports (uneven.cpp).
namespace gradwire::schedule {

/// Share of the data that each rank should own, if rank i's port has `bandwidths[i]` (any unit).
/// Minimizes max_i (1 + (P-2) w_i) / B_i subject to w_i >= 0 and sum of w_i = 1, by filling up from
/// the fastest port. At least one rank; bandwidths > 0.
std::vector<double> uneven_shares(const std::vector<double>& bandwidths);

/// The same in whole chunks: the fewest chunks that come close to the optimal shares.
std::vector<std::uint32_t> uneven_counts(const std::vector<double>& bandwidths);

/// Lower bound of the time of any all-reduce of one byte (in the same units).
double all_reduce_bound(const std::vector<double>& bandwidths);

}  // namespace gradwire::schedule

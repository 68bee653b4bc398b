#pragma once

#include <cstdint>
#include <vector>

/// How an all-reduce's work is best shared out among ranks with unequal ports (uneven.cpp).
namespace gradwire {

/// The part of the data that each rank should own, by rank, if rank i's port has `bandwidths[i]`
/// (any unit): minimises max_i (1 + (P-2) w_i) / B_i where the w_i >= 0 add up to 1, by filling up
/// from the fastest. At least one rank; bandwidths > 0.
std::vector<double> uneven_shares(const std::vector<double>& bandwidths);

/// The same in whole chunks: as few as come close to the best shares.
std::vector<std::uint32_t> uneven_counts(const std::vector<double>& bandwidths);

/// No all-reduce of one byte can take less time (in the same units).
double all_reduce_bound(const std::vector<double>& bandwidths);

}  // namespace gradwire

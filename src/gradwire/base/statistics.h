#pragma once

#include <cstdint>
#include <vector>

namespace gradwire {

/// Returns the median, the mean of the two middle values for an even count; 0 for no values.
double median(std::vector<double> values);

/// Minimum payload bytes that each of P ranks sends to all-reduce G bytes, with any algorithm:
/// 2(P-1)G/P (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
/// workstations", JPDC 69(2), 2009).
double textbook_all_reduce_bytes(int ranks, double gradient_bytes);

/// Share of the compute rate that remains if each step of T_s waits T_c for communication: T_s /
/// (T_s + T_c). 1 if both are zero.
double scaling_efficiency(double compute_seconds, double communication_seconds);

}  // namespace gradwire

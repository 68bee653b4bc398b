#pragma once

#include <cstdint>
#include <vector>

namespace gradwire {

/// The middle value, or the mean of the two middle ones; 0 for none.
double median(std::vector<double> values);

/// Payload bytes that each of P ranks must send to all-reduce G bytes, however clever the
/// algorithm: 2(P-1)G/P (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
/// of workstations", JPDC 69(2), 2009).
double textbook_all_reduce_bytes(int ranks, double gradient_bytes);

/// What is left of the compute rate when each step of T_s also waits T_c for communication:
/// T_s / (T_s + T_c). 1 if both are zero.
double scaling_efficiency(double compute_seconds, double communication_seconds);

}  // namespace gradwire

#pragma once

#include "gradwire/schedule/schedule.h"

namespace gradwire::schedule {

/// Returns the share of the data that crosses each rank's link, so that busbw can be compared with
/// the link's rate. As nccl-tests defines it, with P ranks: all_reduce 2(P-1)/P; all_gather,
/// reduce_scatter, gather, scatter and all_to_all (P-1)/P; broadcast, reduce and point_to_point 1.
double bus_factor(Collective collective, int ranks);

/// Returns the hops, one after the other, of a small operation in trees, as NCCL has it: an
/// all_reduce 2 ceil(log2 P), others half of that. A latency that was measured over as many hops
/// is right for engines that need fewer.
int small_operation_hops(Collective collective, int ranks);

}  // namespace gradwire::schedule

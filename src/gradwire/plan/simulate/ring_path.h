#pragma once

#include <vector>

namespace gradwire {

/// The link from a rank of a ring to the next one.
struct RingLink {
  double bytes_per_second = 0;
  double latency = 0;  ///< Seconds, including processor time of a segment at both ends.
};

/// Returns when the last of `hops` hops around a ring ends, in seconds. Rank r sends over links[r].
/// Each hop sends a chunk of `chunk_bytes` in `segments` segments. A segment leaves when it has
/// arrived (in the first hop: at once) and the segments before it have left.
///
/// That is the critical path through the dependencies. From one hop to the next, it either stays at
/// a link, which sends a whole chunk meanwhile, or moves on with a segment, which takes that
/// segment's time and the latency. It stays only at the slowest link. So the time is the maximum of
/// a few sums, and unequal links cost no more to compute than equal ones.
double ring_time(const std::vector<RingLink>& links, int hops, double chunk_bytes, double segments);

}  // namespace gradwire

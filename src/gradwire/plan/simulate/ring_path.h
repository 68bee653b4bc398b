#pragma once

#include <vector>

namespace gradwire {

/// The link from a rank of a ring to the next one.
struct RingLink {
  double bytes_per_second = 0;
  double latency = 0;  ///< Seconds, with what processors do to a segment at both ends.
};

/// When the last of `hops` hops round a ring is over, in seconds: rank r sends over links[r], each
/// hop a chunk of `chunk_bytes` in `segments` segments, of which each leaves when it has come (that
/// of the first hop: at once) and what is before it has left.
///
/// That is the longest path through what waits for what: from one hop to the next it either stays
/// at a link, which sends a whole chunk meanwhile, or moves on with a segment, which takes that
/// segment's time and the latency. It stays at the slowest link, if at all. So the time is the
/// longest of a few sums, and unequal links cost no more to compute than equal ones.
double ring_time(const std::vector<RingLink>& links, int hops, double chunk_bytes, double segments);

}  // namespace gradwire

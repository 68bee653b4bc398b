#pragma once

#include "gradwire/gradient/overlap.h"
#include "gradwire/plan/model.h"

namespace gradwire {

/// The last pass of a step, and what has to travel for it.
struct OverlapInput {
  Overlap overlap = Overlap::backward;
  double forward = 0;    ///< Seconds of one pass.
  double backward = 0;   ///< Likewise.
  double bandwidth = 0;  ///< Seconds for which the gradients fill the link.
  double latency = 0;    ///< Seconds from when a bucket has left to when its mean is there.
};

/// Seconds of communication in which nothing is computed.
///
/// Layer by layer: backward takes its time from the last layer to the first; layers are put
/// together into buckets, which leave when their last gradient is there, in turn over one link.
/// With Overlap::full the bucket that the next forward needs first overtakes, and each layer of
/// forward waits for its own bucket; with backward all are waited for when it is over; with none
/// they leave only then. So
///
///   none: exposed = latency + bandwidth;   full: exposed >= latency + bandwidth - backward -
///   forward
double exposed_time(const ModelShape& model, const OverlapInput& input);

}  // namespace gradwire

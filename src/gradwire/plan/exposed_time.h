#pragma once

#include "gradwire/gradient/overlap.h"
#include "gradwire/plan/model.h"

namespace gradwire {

/// The last pass of a step, and its communication.
struct OverlapInput {
  Overlap overlap = Overlap::backward;
  double forward = 0;    ///< Seconds of one pass.
  double backward = 0;   ///< Seconds of one pass.
  double bandwidth = 0;  ///< Seconds in which the gradients fill the link.
  double latency = 0;    ///< Seconds from the last byte of a bucket to its mean.
};

/// Returns the seconds of exposed communication.
///
/// Backward computes layer by layer, from the last to the first. Layers are grouped into buckets,
/// which leave one at a time over one link, each when its last gradient is ready. With
/// Overlap::full, the bucket that the next forward needs first has priority, and each layer of
/// forward waits for its own bucket. With backward, the step waits for all buckets at the end of
/// backward. With none, buckets leave only then. So
///
///   none: exposed = latency + bandwidth
///   full: exposed >= latency + bandwidth - backward - forward
double exposed_time(const ModelShape& model, const OverlapInput& input);

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/gradient/codec_averager.h"

namespace gradwire {

/// Averages matrices as products of two factors with `rank` columns (PowerSgdMatrix); each step
/// starts with the Q of the step before. A bucket takes two all-reduces: of the P of all its
/// matrices, together with the tensors that are not matrices or would gain nothing and are
/// uncompressed; and of all Q. Each matrix has memory for its error-feedback residual.
///
/// For the first AveragerOptions::warmup_steps steps gradients are sent uncompressed. State:
/// "PARAMETER.sent" (the residual), "PARAMETER.q" and "codec.step" (int64: steps so far).
std::unique_ptr<CodecAverager> power_sgd_averager(std::shared_ptr<Communicator> communicator,
                                                  std::vector<BucketShape> buckets,
                                                  std::size_t rank, const AveragerOptions& options);

}  // namespace gradwire

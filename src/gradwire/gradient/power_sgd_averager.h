#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/gradient/codec_averager.h"

namespace gradwire {

/// Averages matrices as products of two with `rank` columns (PowerSgdMatrix), beginning each step
/// with the last one's Q. In two all-reduces for a bucket: of the P of all its matrices, together
/// with the tensors that are no matrices or would gain nothing, which travel as they are; and of
/// all Q. Memory for the error feedback of each matrix.
///
/// For the first AveragerOptions::warmup_steps steps gradients travel as they are. State:
/// "PARAMETER.sent" (the error feedback), "PARAMETER.q" and "codec.step" (int64: steps so far).
std::unique_ptr<CodecAverager> power_sgd_averager(std::shared_ptr<Communicator> communicator,
                                                  std::vector<BucketShape> buckets,
                                                  std::size_t rank, const AveragerOptions& options);

}  // namespace gradwire

#pragma once

#include <memory>
#include <vector>

#include "gradwire/codec/catalogue.h"
#include "gradwire/gradient/codec_averager.h"

namespace gradwire {

/// Averages with a codec of single values: every bucket that is not `exact` in pieces (CodedPiece),
/// each in a lane of its own, so that each goes on when it can, whatever the others do: the order
/// in which a lane's operations are posted, exchange and gather of one step after the other, is the
/// same on all ranks however long coding takes. `spec` is of kind codec.
///
/// Warm-up (AveragerOptions::warmup_steps): for codecs with a FRACTION, 1/4, 1/16, ... of it (Lin
/// et al., ICLR 2018, 3.3) in as many equal parts of the time as it takes to come to the codec's
/// own; with others gradients travel as they are for so long.
///
/// State: that of ErrorFeedback, "codec.step" (int64: steps so far) and "codec.layout" (int64:
/// ranks, rank, and a hash of how buckets are cut): with another layout the owners' "mean" begins
/// anew, as they own other elements then, and only contributions' is taken over.
std::unique_ptr<CodecAverager> coded_averager(std::shared_ptr<Communicator> communicator,
                                              std::vector<BucketShape> buckets,
                                              const CodecSpec& spec,
                                              const AveragerOptions& options);

/// The codec of step `step` (from 0) of a warm-up; null: gradients travel as they are.
std::unique_ptr<Codec> codec_of_step(const CodecSpec& spec, std::int64_t step, int warmup_steps);

}  // namespace gradwire

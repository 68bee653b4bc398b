#pragma once

#include <memory>
#include <vector>

#include "gradwire/codec/catalogue.h"
#include "gradwire/exchange/compressed_exchange.h"

namespace gradwire::exchange {

/// Reduces with an element-wise codec. Every unit without skip_compression is cut into pieces
/// (CodedPiece). Each piece has its own lane and so progresses independently of the others. The
/// order in which a lane's operations are posted (exchange and gather of one step after the other)
/// is the same on all ranks, however long coding takes. `spec` is of kind codec.
///
/// Warm-up (ExchangeOptions::warmup_steps): a codec with a FRACTION starts at fraction 1/4 and
/// divides it by 4 in equal intervals until its own fraction is reached (Lin et al., ICLR 2018,
/// 3.3). With other codecs gradients are sent uncompressed during the warm-up.
///
/// State: that of ErrorFeedback, "codec.step" (int64: steps so far) and "codec.layout" (int64:
/// ranks, rank, and a hash of how units are cut). If the layout differs, the owners' "mean"
/// residuals are reset, because they own other elements; the "sent" residuals are kept.
std::unique_ptr<CompressedExchange> coded_exchange(std::unique_ptr<Exchange> plain,
                                                   std::shared_ptr<Communicator> communicator,
                                                   std::vector<UnitShape> units,
                                                   const codec::CodecSpec& spec,
                                                   const ExchangeOptions& options);

/// Returns the codec of step `step` (from 0) of a warm-up; null if gradients are sent uncompressed.
std::unique_ptr<codec::Codec> codec_of_step(const codec::CodecSpec& spec, std::int64_t step,
                                            int warmup_steps);

}  // namespace gradwire::exchange

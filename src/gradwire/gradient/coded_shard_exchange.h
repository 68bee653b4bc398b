#pragma once

#include <memory>
#include <vector>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/gradient/shard_exchange.h"

namespace gradwire {

/// A ShardExchange whose reductions use an element-wise codec (`codec.codec`). Each rank encodes
/// all parts of a unit once and sends them to their owners, which decode and reduce them in rank
/// order. Units with skip_compression, and gathers, are uncompressed. If the codec uses error
/// feedback, every rank keeps a residual of one float32 per element of a unit and adds it to the
/// next pass's gradients; feedback() returns it. With codec "none" this is a shard_exchange().
/// Throws Exception(invalid_argument) for an unknown codec or one of another kind, and
/// for a unit that is not float32 and lacks skip_compression.
std::unique_ptr<ShardExchange> coded_shard_exchange(std::shared_ptr<Communicator> communicator,
                                                    const std::vector<BucketShape>& units,
                                                    const AveragerOptions& codec,
                                                    const ShardExchangeOptions& options = {});

}  // namespace gradwire

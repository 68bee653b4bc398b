#pragma once

#include <memory>
#include <vector>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/gradient/shard_exchange.h"

namespace gradwire {

/// A ShardExchange whose reductions go through a codec of single values (`codec.codec`): each rank
/// encodes all parts of a unit once and sends them to their owners, which add up what they decode,
/// in the order of ranks. Units that are `exact` are averaged as they are. Gathers travel as they
/// are. What is lost of a unit is kept on every rank, as many float32 as the unit has elements, and
/// added to what the next pass reduces (error feedback), if the codec wants that; feedback() has
/// it. With codec "none" it is a shard_exchange(). Throws Exception(invalid_argument): an unknown
/// codec or another kind, a unit that is neither float32 nor `exact`.
std::unique_ptr<ShardExchange> coded_shard_exchange(std::shared_ptr<Communicator> communicator,
                                                    const std::vector<BucketShape>& units,
                                                    const AveragerOptions& codec,
                                                    const ShardExchangeOptions& options = {});

}  // namespace gradwire

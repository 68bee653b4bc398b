#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire::exchange {

/// Exchanges units of any type uncompressed, each in one collective of the communicator. Reductions
/// use one reserved lane and the gathers of each unit another: ranks that make several exchanges
/// must make them in the same order. `timeout`: of each operation; if empty, the communicator's.
/// With one rank it is local_exchange().
std::unique_ptr<Exchange> communicator_exchange(std::shared_ptr<Communicator> communicator,
                                                std::vector<UnitShape> units,
                                                std::optional<Duration> timeout = {});

/// World size 1: all_reduce leaves its data unchanged, the others copy, or do nothing if both spans
/// are the same memory in full.
std::unique_ptr<Exchange> local_exchange();

}  // namespace gradwire::exchange

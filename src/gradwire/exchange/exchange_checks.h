#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/exchange/exchange.h"

/// Argument checks of exchanges. All throw Exception(invalid_argument).
namespace gradwire {

/// Checks that `data` has the count and type of `units[unit]`.
void check_unit(const std::vector<UnitShape>& units, std::size_t unit, const LentSpan& data);

/// Checks that a unit is not started again before it was waited for.
void check_idle(std::size_t unit, bool in_flight);

/// Checks that `count` elements are `ranks` shards of `shard`; the error names `what` and the unit.
void check_shards(std::string_view what, std::size_t unit, std::size_t count, std::size_t shard,
                  int ranks);

/// Checks that all units without skip_compression are float32; the error names the first tensor
/// that is not.
void check_codable(const std::vector<UnitShape>& units, const std::string& codec);

}  // namespace gradwire

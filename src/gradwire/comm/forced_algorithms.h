#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// By collective, the algorithm that it is done with whatever the tuner says.
using ForcedAlgorithms = std::map<Collective, std::string>;

/// A comma list of entries, "ring" (for every collective that has an algorithm of that name) or
/// "all_reduce=ring" (for one). Later entries win. `source`: who says so ("GRADWIRE_ALGORITHM"),
/// for messages. Errors: invalid_argument, for an unknown collective or algorithm; the message
/// lists the known ones.
Result<ForcedAlgorithms> parse_forced_algorithms(std::string_view text, std::string_view source);

}  // namespace gradwire

#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Algorithms that override the tuner, by collective.
using ForcedAlgorithms = std::map<Collective, std::string>;

/// Parses a comma-separated list of entries: "ring" (for every collective that has an algorithm of
/// that name) or "all_reduce=ring" (for one). Later entries win. `source` names the origin of the
/// text in errors ("GRADWIRE_ALGORITHM"). Fails with invalid_argument on an unknown collective or
/// algorithm; the message lists the known ones.
Result<ForcedAlgorithms> parse_forced_algorithms(std::string_view text, std::string_view source);

}  // namespace gradwire

#pragma once

#include <cstddef>

#include "gradwire/base/error.h"

namespace gradwire {

/// Sees to it that this process may open `more` descriptors beyond those it has. Raises its soft
/// limit (RLIMIT_NOFILE) as far as the hard one allows, but no further than 65536 or what is
/// needed: other communicators of the process, and strangers that connect, need some too. Error:
/// system, when the hard limit does not suffice; names the limit and what raises it.
Status allow_descriptors(std::size_t more);

/// One in `parts` of the descriptors that this process may have, at least 8.
std::size_t part_of_descriptors(std::size_t parts);

}  // namespace gradwire

#pragma once

#include <cstddef>

#include "gradwire/base/error.h"

namespace gradwire {

/// Sees to it that this process may open `more` descriptors beyond those it has, for which it
/// raises its soft limit (RLIMIT_NOFILE) if need be. Error: system, when the hard limit does not
/// suffice; names the limit and what raises it.
Status allow_descriptors(std::size_t more);

}  // namespace gradwire

#pragma once

#include <cstddef>

#include "gradwire/base/error.h"

namespace gradwire::net {

/// Ensures that this process may open `more` file descriptors in addition to those that it has.
/// Raises the soft limit (RLIMIT_NOFILE) within the hard one, to 65536 or the number needed,
/// whichever is greater: other communicators and unauthenticated peers need some, too. Fails with
/// system if the hard limit is too low; names the limit and how to raise it.
Status allow_descriptors(std::size_t more);

/// Returns 1/`parts` of this process's descriptor limit, at least 8.
std::size_t part_of_descriptors(std::size_t parts);

}  // namespace gradwire::net

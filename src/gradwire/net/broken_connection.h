#pragma once

#include <string>

#include "gradwire/base/clock.h"

namespace gradwire {

/// Returns a sentence for users about the end of the connection to `name`. `cause` is an errno
/// value; 0 is the peer's orderly end of stream. `dead_after` as for tune_stream().
std::string describe_broken_connection(int cause, const std::string& name, Duration dead_after);

}  // namespace gradwire

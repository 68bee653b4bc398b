#pragma once

#include <string>

#include "gradwire/bootstrap/job.h"

namespace gradwire {

/// Returns the secret that all jobs of this user on this host share by default: 64 hexadecimal
/// digits in a file that only the user may read. The file is $XDG_RUNTIME_DIR/gradwire/key or, if
/// that directory does not exist, $XDG_CACHE_HOME/gradwire/key or $HOME/.cache/gradwire/key. The
/// first process that needs it creates it; ranks that start at the same time agree on one. Throws
/// Exception: refused if the file belongs to another user or is readable by others, system if it
/// cannot be read or created.
std::string user_key(const Environment& environment);

/// user_key() with a given path of the file.
std::string user_key_in(const std::string& path);

}  // namespace gradwire

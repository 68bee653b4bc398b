#pragma once

#include <string>

#include "gradwire/comm/job.h"

namespace gradwire {

/// The secret that all jobs of this user on this host share when none was given: 64 hexadecimal
/// digits in a file that only the user may read. It lies in $XDG_RUNTIME_DIR/gradwire/key or, if
/// there is no such folder, in $XDG_CACHE_HOME/gradwire/key or $HOME/.cache/gradwire/key, and is
/// made by whoever needs it first; ranks that start at the same time agree on one.
/// Throws Exception: refused if the file belongs to somebody else or others may read it, system if
/// it cannot be read or made.
std::string user_key(const Environment& environment);

/// The same with the file's place given.
std::string user_key_in(const std::string& path);

}  // namespace gradwire

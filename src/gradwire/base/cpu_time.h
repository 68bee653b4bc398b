#pragma once

namespace gradwire {

/// Returns the user and system CPU time of all threads of this process, in seconds. Thread-safe.
double cpu_seconds_used();

}  // namespace gradwire

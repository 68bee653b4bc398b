#pragma once

namespace gradwire {

/// Returns the number of cores that this process may use (its CPU affinity); at least 1.
int usable_cores();

/// Returns the user and system CPU time of all threads of this process, in seconds. Thread-safe.
double cpu_seconds_used();

}  // namespace gradwire

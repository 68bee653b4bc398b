#pragma once

namespace gradwire {

/// Seconds of user and system time that this process has used, all its threads together.
/// Thread-safe.
double cpu_seconds_used();

}  // namespace gradwire

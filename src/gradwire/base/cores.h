#pragma once

namespace gradwire {

/// Returns the number of cores that this process may use (its CPU affinity); at least 1.
int usable_cores();

}  // namespace gradwire

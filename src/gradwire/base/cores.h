#pragma once

namespace gradwire {

/// How many cores this process may use; at least 1.
int usable_cores();

}  // namespace gradwire

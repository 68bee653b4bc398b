#pragma once

#include <string>

namespace gradwire {

/// A name for what this process shares with the others on its machine: equal in two processes only
/// if they run under the same boot of the same kernel and in the same network namespace. Processes
/// in two containers with networks of their own are on two machines: what one sends the other goes
/// through their network interfaces. Empty if the system does not tell.
std::string machine_identity();

/// How many processors this machine has in use; at least 1.
int machine_cores();

}  // namespace gradwire

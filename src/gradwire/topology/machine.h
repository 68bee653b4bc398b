#pragma once

#include <string>
#include <vector>

namespace gradwire {

/// A name for what this process shares with the others on its machine: equal in two processes only
/// if they run under the same boot of the same kernel and in the same network namespace. Processes
/// in two containers with networks of their own are on two machines: what one sends the other goes
/// through their network interfaces. Empty if the system does not tell.
std::string machine_identity();

/// The part of a machine_identity() that stands for the kernel: machines for which it is equal
/// share their processors.
std::string kernel_of(const std::string& machine_identity);

/// How many processors this machine has in use; at least 1.
int machine_cores();

/// Names that tell hosts apart, though several may be called the same: the first keeps its name, a
/// later one gets its place in the list behind it ("vm", "vm#1").
std::vector<std::string> distinct_names(const std::vector<std::string>& hosts);

}  // namespace gradwire

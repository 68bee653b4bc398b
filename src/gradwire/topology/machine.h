#pragma once

#include <string>
#include <vector>

namespace gradwire::topology {

/// Returns an identifier of this process's machine. It is equal in two processes only if they run
/// under the same boot of the same kernel and in the same network namespace. Two containers with
/// separate network namespaces are two machines: their traffic goes through their network
/// interfaces. Empty if the system does not provide it.
std::string machine_identity();

/// Returns the kernel's part of a machine_identity(): machines with equal parts share their
/// processors.
std::string kernel_of(const std::string& machine_identity);

/// Returns the number of online processors of this machine; at least 1.
int machine_cores();

/// Makes host names unique: the first host of a name keeps it, a later one gets its index in the
/// list as a suffix ("vm", "vm#1").
std::vector<std::string> distinct_names(const std::vector<std::string>& hosts);

}  // namespace gradwire::topology

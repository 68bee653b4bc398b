#pragma once

#include <filesystem>

namespace gradwire {

/// Returns the number of cores that this process may use, at least 1: its CPU affinity, and the CPU
/// quota of its control groups (docker --cpus, limits of Kubernetes), rounded up.
int usable_cores();

/// Returns the CPU quota of the control groups of this process, the smallest of them and the groups
/// around them, in cores; infinity without one. Reads `root`/proc/self/cgroup and
/// `root`/sys/fs/cgroup, of version 1 and 2. In a container, whose path is that of the host, the
/// container's own group is the root.
double cpu_quota(const std::filesystem::path& root = "/");

/// Returns the user and system CPU time of all threads of this process, in seconds. Thread-safe.
double cpu_seconds_used();

}  // namespace gradwire

#pragma once

#include <string>

#include "gradwire/topology/cluster.h"

namespace gradwire::cli {

/// Returns the measurements as text tables: hosts and rails, and for each rail the paths (all with
/// up to 16 hosts, else only the slowest).
std::string describe_cluster(const topology::Cluster& cluster);

}  // namespace gradwire::cli

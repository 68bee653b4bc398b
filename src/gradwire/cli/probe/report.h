#pragma once

#include <string>

#include "gradwire/topology/cluster.h"

namespace gradwire {

/// What was measured, as tables for people: hosts and rails, and, for each rail, from which host to
/// which (up to 16 hosts; of more only the worst pairs).
std::string describe_cluster(const Cluster& cluster);

}  // namespace gradwire

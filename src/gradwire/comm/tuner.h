#pragma once

#include <cstddef>
#include <string>

#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// The name of the algorithm to use for a collective over `bytes` bytes of all chunks together. Pure, so
/// that all ranks choose the same.
std::string choose_algorithm(Collective collective, std::size_t bytes, const Topology& topology);

}  // namespace gradwire

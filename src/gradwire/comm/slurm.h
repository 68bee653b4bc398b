#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gradwire {

/// The first host of a Slurm host list such as "n[01-03,7],m2" ("n01"). Throws
/// Exception(invalid_argument) with the text if it is not one.
std::string first_slurm_host(std::string_view hosts);

/// How many tasks node number `node` (from 0) runs, of a SLURM_TASKS_PER_NODE such as "2(x3),1".
/// Nothing if the text is not like that, or has fewer nodes.
std::optional<int> slurm_tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace gradwire

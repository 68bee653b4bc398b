#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gradwire {

/// Returns the first host of a Slurm host list: "n01" for "n[01-03,7],m2". Throws
/// Exception(invalid_argument), which quotes the text, if it is malformed.
std::string first_slurm_host(std::string_view hosts);

/// Returns the number of tasks on node `node` (from 0) in a SLURM_TASKS_PER_NODE such as "2(x3),1".
/// Returns nullopt if the text is malformed or has fewer nodes.
std::optional<int> slurm_tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace gradwire

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/plan/simulate/simulated_ranks.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"

namespace gradwire::plan {

/// Returns the time of an operation on `bytes` bytes of all chunks together.
using OperationTimes = std::function<OperationTime(schedule::Collective, double bytes)>;

/// Returns the all-reduce algorithms of fabric_times(), "auto" first.
std::vector<std::string_view> planned_algorithms();

/// Returns times on links that `gradwire probe` measured, or that are assumed, from the link model
/// with all ranks. For up to a few hundred ranks.
///
/// `algorithm`: "auto", as the tuner chooses by the measurements of `gradwire tune`, including
/// message segments; or a name of the catalogue, for the collectives that have it, as with
/// GRADWIRE_ALGORITHM. Throws Exception(invalid_argument) for an unknown algorithm.
OperationTimes measured_times(const topology::JobTopology& job,
                              const std::string& algorithm = "auto");

/// executor_costs() with more segments, which fill the pipelines of many ranks.
schedule::CostOptions fabric_costs();

/// Returns times on a fabric of up to 16,384 ranks, or more on hosts of one rank:
/// CollectiveSimulation. "auto": the fastest of planned_algorithms() that the collective has, of
/// recursive_halving, or its first algorithm.
OperationTimes fabric_times(const Fabric& fabric, const std::string& algorithm = "auto",
                            const schedule::CostOptions& costs = fabric_costs());

}  // namespace gradwire::plan

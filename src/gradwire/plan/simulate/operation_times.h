#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/engine/executor_costs.h"
#include "gradwire/plan/simulate/simulated_ranks.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"

namespace gradwire {

/// Returns the time of an operation on `bytes` bytes of all chunks together.
using OperationTimes = std::function<OperationTime(Collective, double bytes)>;

/// Returns times on links that `gradwire probe` measured, or that are assumed, from the link model
/// with all ranks. Adds two effects that the model does not have: streams that share a port lose
/// some of its rate, and hosts simulated on one machine share its processors. For up to a few
/// hundred ranks.
///
/// `algorithm`: "auto", as the tuner chooses by the measurements of `gradwire tune`, including
/// message segments; or a name of the catalogue, for the collectives that have it, as with
/// GRADWIRE_ALGORITHM. Throws Exception(invalid_argument) for an unknown algorithm.
OperationTimes measured_times(const JobTopology& job, const std::string& algorithm = "auto");

/// Returns times on a fabric of up to 16,384 ranks: simulate_collective(). "auto": the fastest of
/// ring, direct, halving_doubling, double_tree and tree, if the collective has them, or its first
/// algorithm.
OperationTimes fabric_times(const Fabric& fabric, const std::string& algorithm = "auto",
                            const CostOptions& costs = executor_costs());

}  // namespace gradwire

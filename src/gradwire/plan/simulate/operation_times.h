#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/comm/executor_costs.h"
#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"

namespace gradwire {

/// An operation when nothing else is under way.
struct OperationTime {
  double seconds = 0;
  double port_seconds = 0;  ///< Of them, how long the busiest port is. Others may have the rest.
  std::string algorithm;
};

/// How long operations on `bytes` bytes of all chunks together take.
using OperationTimes = std::function<OperationTime(Collective, double bytes)>;

/// On links that `gradwire probe` measured, or that are assumed: the link model, on all ranks, with
/// what it does not know of: streams that meet in one port lose some of its rate to each other, and
/// hosts that are simulated on one machine share its processors. `algorithm`: "auto", as the tuner
/// chooses, who goes by what `gradwire tune` measured, segments of messages included; or the
/// catalogue's name, which counts for the collectives that have it, as GRADWIRE_ALGORITHM does. For
/// up to some hundred ranks. Throws Exception(invalid_argument): an unknown algorithm.
OperationTimes measured_times(const JobTopology& job, const std::string& algorithm = "auto");

/// On a fabric of up to 16,384 ranks: simulate_collective(). "auto": the fastest of ring, direct,
/// halving_doubling and double_tree, or of a collective's own.
OperationTimes fabric_times(const Fabric& fabric, const std::string& algorithm = "auto",
                            const CostOptions& costs = executor_costs());

}  // namespace gradwire

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/plan/place/host_placement.h"
#include "gradwire/plan/predict/step_time.h"

namespace gradwire::plan {

/// Hosts with one device each, and the links between them, all of which may differ.
struct HostLinks {
  std::vector<PlacementHost> hosts;
  /// From host i to host j: [i * hosts + j].
  std::vector<double> bytes_per_second;
  double latency = 0;  ///< Seconds, of the slowest link.
};

/// Returns the hosts of the input with the memory of its device and a speed of 1: those that
/// `gradwire probe` measured, with their links, if the network has them; else `strategy.nodes`
/// equal ones on the network. Throws Exception(invalid_argument) if another number was measured.
HostLinks hosts_of(const PlanInput& input);

/// A pipeline over unequal hosts, one stage on each, which fits into their memory.
struct PlacedHosts {
  PlanInput input;  ///< Has nodes, pipeline, micro_batches, schedule and batch set.
  std::vector<PlacementHost> hosts;  ///< By stage.
  std::vector<std::string> unused;   ///< Names of hosts that would make a step longer.
  std::vector<std::size_t> cut;      ///< By stage: layers of with_blocks().
  pipeline::PipelineCosts costs;     ///< By stage, of a micro-batch.
  pipeline::PipelineSchedule schedule;
  std::vector<double> memory_bytes;  ///< By stage.
  double step = 0;                   ///< Seconds of a step in simulation, with the update.
  double samples_per_second = 0;
  /// Step of the same schedule with about equally many layers per stage, on the first hosts in
  /// their given order; 0 if that does not fit.
  double even_step = 0;
};

/// Returns the fastest pipeline of the global batch over two or more of the hosts, one replica: the
/// hosts, their order and the cut by place_on_hosts(), for each number of stages (above kExactHosts
/// hosts only one stage on each), up to 1, 2 and 4 micro-batches per stage (as many as divide the
/// batch; or the input's, if above 1) and each schedule, whose simulated steps decide.
/// `schedules`: names of pipeline/catalogue.h; empty: 1f1b, zero_bubble, zero_bubble_h1 and auto,
/// also with less memory. Returns nullopt if none fits. Throws what make_pipeline() throws.
std::optional<PlacedHosts> place_over_hosts(const PlanInput& input, const HostLinks& links,
                                            const std::vector<std::string>& schedules = {});

}  // namespace gradwire::plan

#pragma once

#include <memory>
#include <string>

#include "gradwire/plan/device.h"
#include "gradwire/plan/model.h"
#include "gradwire/plan/network.h"
#include "gradwire/plan/predict/collective_time.h"
#include "gradwire/plan/predict/memory.h"
#include "gradwire/plan/predict/pipeline_time.h"
#include "gradwire/plan/strategy.h"

namespace gradwire::plan {

/// Measured times that replace modeled ones; 0: not measured.
struct Measurements {
  double step = 0;  ///< Seconds of one pass on one device, without communication.
  /// Seconds of averaging fp32 gradients once: over one card, without codec, by `nodes` nodes.
  double communication = 0;
  int nodes = 0;  ///< Nodes in the measurement of `communication`.
};

/// All inputs of a prediction.
struct PlanInput {
  ModelShape model;
  Device device;
  Network network;
  Strategy strategy;
  double storage_bytes_per_second = 0;  ///< From storage to each node; 0: unlimited.
  Measurements measured;
  /// Times of collectives that copies of an input share; not null.
  std::shared_ptr<CollectiveTimes> times = std::make_shared<CollectiveTimes>();
  /// The same for pipelines; not null.
  std::shared_ptr<PipelineTimes> pipelines = std::make_shared<PipelineTimes>();
};

/// Seconds of one optimizer step by phase, each as if it ran alone.
struct PhaseTimes {
  double storage = 0;    ///< 0: samples from storage to the node.
  double forward = 0;    ///< 1: all passes.
  double backward = 0;   ///< 2: all passes, including recomputation.
  double bubble = 0;     ///< Pipeline stages that would wait on an infinite network too.
  double unequal = 0;    ///< Time of the slowest pipeline stage, beyond the mean of all.
  double inside = 0;     ///< Waiting for activations of devices that share layers or are stages.
  double bandwidth = 0;  ///< 3: gradients, by bytes.
  double latency = 0;    ///< 3: gradients, by hops.
  double update = 0;     ///< 4: the optimizer.
};

/// Bottleneck of a step.
enum class PlanBottleneck : std::uint8_t { compute, bandwidth, latency, storage, update, pipeline };

std::string_view name_of(PlanBottleneck bottleneck);

struct StepTime {
  PhaseTimes phases;
  double t_s = 0;                 ///< Computation: forward, backward, update.
  double t_c = 0;                 ///< Communication of gradients, hidden or not.
  double hidden = 0;              ///< Part of t_c behind compute.
  double exposed = 0;             ///< Part of t_c in which nothing is computed.
  double waiting_for_data = 0;    ///< Time of storage beyond the rest of the step.
  double step = 0;                ///< t_s + bubble + unequal + inside + exposed + waiting_for_data.
  double eta = 1;                 ///< t_s / step.
  double samples_per_second = 0;  ///< Rate of all replicas.
  std::string algorithm;          ///< Algorithm of the gradients' exchange; "none" without one.
  double wire_bytes = 0;          ///< Sent by a node per step.
  PlanBottleneck bottleneck = PlanBottleneck::compute;
};

/// Predicts a step. Pure, apart from what input.times remembers. `input.strategy` must pass
/// check_strategy().
///
/// T_s = accumulate * (forward + backward) + update; a measured step replaces all of it, times
/// accumulate. T_c: collective_time.h, divided by local_steps. Exposed: exposed_time.h. A pipeline
/// has the stages of place/degrees.h, whose times its schedule runs with.
StepTime step_time(const PlanInput& input);

/// The same for a pipeline whose stages take equally long.
StepTime step_time_of_equal_stages(const PlanInput& input);

/// The step with these times of computing and of the pipeline; the others are added.
StepTime step_time_with(const PlanInput& input, const PhaseTimes& computing);

/// Returns the memory use of the device with the maximum. A pipeline keeps the micro-batches that
/// its schedule says.
MemoryUse memory_use(const PlanInput& input);

/// Returns true if that is no more than a device's memory.
bool fits(const PlanInput& input);

/// Returns the line rate, in bytes per second, at which gradients take as long as computation:
/// "communication per step <= compute per step". `many`: counts 2G bytes each way, as for many
/// ranks, in place of 2G (P-1)/P. For mixed precision and 6 P D = 4.8e15 operations per step (10 B
/// parameters, 80,000 tokens) on nodes of 8 A100 at 50 % of 300 TFLOP/s, that is the rule IB >= N x
/// P GB/s.
double needed_network(const PlanInput& input, bool many = false);

}  // namespace gradwire::plan

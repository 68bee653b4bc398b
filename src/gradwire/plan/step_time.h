#pragma once

#include <string>

#include "gradwire/plan/device.h"
#include "gradwire/plan/memory.h"
#include "gradwire/plan/model.h"
#include "gradwire/plan/network.h"
#include "gradwire/plan/strategy.h"

namespace gradwire {

/// What replaces a modelled time; 0: nothing was measured.
struct Measurements {
  double step = 0;  ///< Seconds of one pass of one device without communication.
  /// Seconds of averaging fp32 gradients once: over one card, with no codec, by `nodes` nodes.
  double communication = 0;
  int nodes = 0;  ///< With which `communication` was measured.
};

/// All that decides how fast a model trains.
struct PlanInput {
  ModelShape model;
  Device device;
  Network network;
  Strategy strategy;
  double storage_bytes_per_second = 0;  ///< From storage to each node; 0: not a limit.
  Measurements measured;
};

/// Seconds of one step of the optimiser by phase, each as if it were alone.
struct PhaseTimes {
  double storage = 0;    ///< 0: samples from storage to the node.
  double forward = 0;    ///< 1: all passes.
  double backward = 0;   ///< 2: all passes; recomputed activations too.
  double bubble = 0;     ///< Stages of a pipeline that wait.
  double inside = 0;     ///< Activations between devices that share layers or are stages.
  double bandwidth = 0;  ///< 3: gradients, by bytes.
  double latency = 0;    ///< 3: gradients, by hops.
  double update = 0;     ///< 4: the optimiser.
};

/// What limits a step.
enum class PlanBottleneck : std::uint8_t { compute, bandwidth, latency, storage, update, pipeline };

std::string_view name_of(PlanBottleneck bottleneck);

struct StepTime {
  PhaseTimes phases;
  double t_s = 0;               ///< Computation: forward, backward, update.
  double t_c = 0;               ///< Communication of gradients, hidden or not: bandwidth + latency.
  double hidden = 0;            ///< The part of t_c in which something is computed.
  double exposed = 0;           ///< The part in which nothing is.
  double waiting_for_data = 0;  ///< That storage takes longer than the rest.
  double step = 0;              ///< t_s + bubble + inside + exposed + waiting_for_data.
  double eta = 1;               ///< t_s / step.
  double samples_per_second = 0;  ///< Of all replicas.
  std::string algorithm;          ///< Of the gradients' all-reduce; "" if there is none.
  double wire_bytes = 0;          ///< That a node sends in a step.
  PlanBottleneck bottleneck = PlanBottleneck::compute;
};

/// Pure. `input.strategy` passes check_strategy().
///
/// T_s = accumulate * (forward + backward) + update; a measured step stands for all of it, times
/// accumulate. T_c: collective_time.h, divided by local_steps. Exposed: hidden_time.h.
StepTime step_time(const PlanInput& input);

/// The line rate, in bytes per second, at which gradients take as long as computation:
/// "communication per step <= compute per step". `many`: counted as for many ranks, 2G bytes each
/// way in place of 2G (P-1)/P. For mixed precision and 6 P D = 4.8e15 operations a step (10 B
/// parameters, 80,000 tokens) on nodes of 8 A100 at 50 % of 300 TFLOP/s that is the rule IB >= N x
/// P GB/s.
double needed_network(const PlanInput& input, bool many = false);

}  // namespace gradwire

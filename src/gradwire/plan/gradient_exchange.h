#pragma once

#include <string>

#include "gradwire/plan/step_time.h"

namespace gradwire {

/// What the gradients, and with ZeRO the parameters, take on the network in one step.
struct GradientExchange {
  double bandwidth = 0;   ///< Seconds.
  double latency = 0;     ///< Seconds.
  double wire_bytes = 0;  ///< That each node sends.
  std::string algorithm;
  /// Of these, parts that do not follow the last backward: what is reduced after earlier passes
  /// (ZeRO 2, 3), ...
  double reduced_before = 0;
  double gathered_after = 0;      ///< ... gathered after the update (ZeRO 1, 2), ...
  double gathered_in_passes = 0;  ///< ... and for each layer of forward and backward (ZeRO 3).
};

/// With d devices a node of which t share a replica: replicas of a node add up inside first
/// (hierarchical), then nodes exchange, each of them its pieces of the model: 1 or d / t of it.
/// ZeRO (arXiv:1910.02054, section 7): stages 1 and 2 send as much as data parallelism, stage 3
/// half as much again: parameters are gathered for forward and for backward. Stages 2 and 3 reduce
/// after each accumulated pass. A codec makes the reductions smaller, and nothing else.
///
/// Measured communication stands for a ring of fp32 gradients over one card: it is taken for bytes
/// alone, and sets the rate; hops count only as far as there are more than were measured.
GradientExchange gradient_exchange(const PlanInput& input);

}  // namespace gradwire

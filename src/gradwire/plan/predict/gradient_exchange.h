#pragma once

#include <string>

#include "gradwire/plan/predict/exposed_time.h"
#include "gradwire/plan/predict/step_time.h"

namespace gradwire::plan {

/// Communication of gradients, and with ZeRO of parameters, in one step.
struct GradientExchange {
  double bandwidth = 0;   ///< Seconds, of all passes.
  double latency = 0;     ///< Seconds, of all passes.
  double wire_bytes = 0;  ///< Sent by each node.
  std::string algorithm;
  WholeExchange reduce;  ///< One reduction of all gradients.
  WholeExchange gather;  ///< ZeRO: one gather of all parameters.
};

/// Returns the communication of one step. With d devices per node and t devices per replica, the
/// replicas of a node reduce first (hierarchical). Then nodes exchange their parts of the model, 1
/// or d / t of it. ZeRO (arXiv:1910.02054, section 7): stages 1 and 2 send as much as data
/// parallelism. Stage 3 sends 1.5 times as much, as parameters are gathered for forward and for
/// backward. Stages 2 and 3 reduce after each accumulated pass. A codec shrinks the reductions
/// only.
///
/// Measured communication is that of a ring all-reduce of fp32 gradients over one card. It sets the
/// rate of bytes; hops count only beyond those of the measurement.
GradientExchange gradient_exchange(const PlanInput& input);

}  // namespace gradwire::plan

#pragma once

#include <array>
#include <string>
#include <vector>

#include "gradwire/plan/advice.h"
#include "gradwire/plan/run_cost.h"
#include "gradwire/plan/step_time.h"

namespace gradwire {

/// All results for one input.
struct Plan {
  PlanInput input;
  StepTime time;
  MemoryUse memory;
  bool fits = true;     ///< Into the memory of a device.
  bool can_fit = true;  ///< With some ZeRO stage, batch and recomputation.
  /// If it does not fit: by ZeRO stage, the minimum number of nodes on which it fits with batch 1
  /// and recomputed activations; 0: on no number.
  std::array<int, 4> min_nodes{};
  std::vector<Advice> advice;  ///< Best first.
  RunCost cost;
};

/// Throws what check_strategy() and step_time() throw.
Plan make_plan(const PlanInput& input, const Prices& prices = {});

/// Returns the samples per pass that fit into a device's memory: `wanted`, halved until they fit;
/// at least 1.
double batch_that_fits(PlanInput input, double wanted);

/// Returns the bottleneck in one sentence: cause, size and remedy.
std::string bottleneck_sentence(const Plan& plan);

/// "needs 119 GB of a100's 80 GB on each device (parameters ...)".
std::string memory_sentence(const Plan& plan);

/// "It fits with ZeRO stage 3 on 6 or more nodes, ...", or that more nodes do not help.
std::string min_nodes_sentence(const Plan& plan);

/// Formats the plan as lines of text.
std::string to_text(const Plan& plan);

/// Formats the plan as JSON; docs/plan.md has the keys.
std::string to_json(const Plan& plan);

}  // namespace gradwire

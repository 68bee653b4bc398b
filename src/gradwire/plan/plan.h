#pragma once

#include <array>
#include <string>
#include <vector>

#include "gradwire/plan/advice.h"
#include "gradwire/plan/run_cost.h"
#include "gradwire/plan/step_time.h"

namespace gradwire {

/// All answers about one input.
struct Plan {
  PlanInput input;
  StepTime time;
  MemoryUse memory;
  bool fits = true;     ///< Into the memory of a device.
  bool can_fit = true;  ///< With some ZeRO stage, batch and recomputation, at least.
  /// By ZeRO stage, if it does not fit: from so many nodes on it does, with batch 1 and recomputed
  /// activations; 0: on no number of them.
  std::array<int, 4> fewest_nodes{};
  std::vector<Advice> advice;  ///< The best first.
  RunCost cost;
};

/// Throws what check_strategy() and step_time() throw.
Plan make_plan(const PlanInput& input, const Prices& prices = {});

/// Samples a pass that a device has memory for: `wanted`, or half of it, and so on; at least 1.
double batch_that_fits(PlanInput input, double wanted);

/// The bottleneck in one sentence: what, how much, and what would remove it.
std::string bottleneck_sentence(const Plan& plan);

/// "needs 119 GB of a100's 80 GB on each device (parameters ...)".
std::string memory_sentence(const Plan& plan);

/// "It fits with ZeRO stage 3 on 6 or more nodes, ...", or that more nodes do not help.
std::string fewest_nodes_sentence(const Plan& plan);

/// The plan for people, lines of text.
std::string to_text(const Plan& plan);

/// docs/plan.md has the keys.
std::string to_json(const Plan& plan);

}  // namespace gradwire

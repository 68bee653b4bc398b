#pragma once

#include <array>
#include <string>
#include <vector>

#include "gradwire/plan/predict/step_time.h"
#include "gradwire/plan/ways.h"

namespace gradwire::plan {

/// Size of a run, and prices; 0: not given.
struct Prices {
  double samples = 0;  ///< Per epoch.
  double epochs = 1;
  double per_node_hour = 0;  ///< Rent of a node, in any currency.
  double watts = 0;          ///< Power of a device under load; 0: the catalogue's value.
  double per_kwh = 0;        ///< Price of energy.
};

/// Cost of the whole run; 0 if its inputs were not given.
struct RunCost {
  double steps = 0;
  double hours = 0;
  double rent = 0;
  double kwh = 0;
  double energy = 0;  ///< Price of the energy.
};

/// Computes steps = epochs * samples / global batch; hours = steps * seconds per step / 3600; rent
/// = hours * nodes * price; kWh = hours * devices * watts / 1000. Parameter servers count as nodes.
RunCost run_cost(const PlanInput& input, const StepTime& time, const Prices& prices);

/// A proposed change, and its predicted effect.
struct Advice {
  std::string change;  ///< "second NIC"
  std::string text;    ///< "second NIC: 36.5 -> 38.4 samples/s, efficiency 89.8 -> 94.5 %"
  std::string note;    ///< Side effects; may be empty.
  double eta = 0;      ///< Predicted, with the change.
  double samples_per_second = 0;
  bool fits = true;
  bool mends = false;  ///< The change mends something that is broken.
  PlanInput input;     ///< Includes the change.
};

/// Returns changes that raise the samples per second by at least 0.1 %, or make the model fit. Each
/// is planned by itself. What mends something broken comes first, then the fastest.
std::vector<Advice> advise(const PlanInput& input);

/// All results for one input.
struct Plan {
  PlanInput input;
  StepTime time;
  MemoryUse memory;
  bool fits = true;     ///< The model fits into the memory of a device.
  bool can_fit = true;  ///< Some ZeRO stage, batch and recomputation fit.
  /// If it does not fit: by ZeRO stage, the minimum number of nodes on which it fits with batch 1
  /// and recomputed activations; 0: on no number.
  std::array<int, 4> min_nodes{};
  std::vector<Advice> advice;  ///< Best first.
  RunCost cost;
  std::vector<Way> ways;  ///< Pipeline, ZeRO, data parallelism: compare_ways().
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

/// Origin of one number of a plan.
struct Explained {
  std::string what;    ///< "T_c, bandwidth"
  std::string value;   ///< "106 ms"
  std::string how;     ///< The formula, with its numbers.
  std::string source;  ///< "measured: --step-ms", "assumed: ...", or a publication.
};

/// Returns all inputs and results of the plan.
std::vector<Explained> explain(const Plan& plan);

/// Formats one paragraph each.
std::string to_text(const std::vector<Explained>& all);

}  // namespace gradwire::plan

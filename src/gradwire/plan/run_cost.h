#pragma once

#include "gradwire/plan/step_time.h"

namespace gradwire {

/// Size of a run, and prices; 0: not given.
struct Prices {
  double samples = 0;  ///< Per epoch.
  double epochs = 1;
  double per_node_hour = 0;  ///< Rent of a node, in any currency.
  double watts = 0;          ///< Of a device under load; 0: the catalogue's value.
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

}  // namespace gradwire

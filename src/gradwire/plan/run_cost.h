#pragma once

#include "gradwire/plan/step_time.h"

namespace gradwire {

/// What a run is and what its parts cost; 0: not given.
struct Prices {
  double samples = 0;  ///< Of an epoch.
  double epochs = 1;
  double per_node_hour = 0;  ///< Rent of a node, in any currency.
  double watts = 0;          ///< Of a device under load; 0: the catalogue's.
  double per_kwh = 0;        ///< Price of energy.
};

/// Of the whole run; 0 where what it needs was not given.
struct RunCost {
  double steps = 0;
  double hours = 0;
  double rent = 0;
  double kwh = 0;
  double energy = 0;  ///< Its price.
};

/// steps = epochs * samples / global batch; hours = steps * a step's seconds / 3600; rent = hours *
/// nodes * price; kWh = hours * devices * watts / 1000. Servers of parameters are nodes too.
RunCost run_cost(const PlanInput& input, const StepTime& time, const Prices& prices);

}  // namespace gradwire

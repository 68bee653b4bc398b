#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/plan/step_time.h"

namespace gradwire {

/// What the page's table has an axis for.
struct PlanGrid {
  std::vector<int> nodes;         ///< Ascending.
  std::vector<Network> networks;  ///< The slowest first.
  std::vector<double> batches;    ///< Ascending.
  std::vector<std::string> codecs;
};

/// Nodes from 1 to 4096, the catalogue's networks and `input`'s, batches round `input`'s, the usual
/// codecs (none alone with ZeRO).
PlanGrid usual_grid(const PlanInput& input);

/// A page with sliders for nodes, network, batch and codec. It has a table of plans, one for each
/// point of the grid, and goes between them by interpolation: linear in the logarithms of nodes and
/// batch. Error: that of html_page().
Result<std::string> plan_page(const PlanInput& input, const PlanGrid& grid);

}  // namespace gradwire

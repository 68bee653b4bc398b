#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/plan/predict/step_time.h"

namespace gradwire::plan {

/// Axes of the page's table.
struct PlanGrid {
  std::vector<int> nodes;         ///< Ascending.
  std::vector<Network> networks;  ///< Slowest first.
  std::vector<double> batches;    ///< Ascending.
  std::vector<std::string> codecs;
};

/// Returns the default grid: nodes from 1 to 4096, the usual networks of the catalogue and
/// `input`'s, batches around `input`'s, the usual codecs (only `input`'s with servers, or with ZeRO
/// in mixed precision).
PlanGrid default_grid(const PlanInput& input);

/// Returns a page with sliders for nodes, network, batch and codec. It contains a table with one
/// plan per point of the grid, and interpolates between them linearly in the logarithms of nodes
/// and batch. Below, compare_ways() of `input`, with the drawing of the pipeline's schedule. Errors
/// as html_page().
Result<std::string> plan_page(const PlanInput& input, const PlanGrid& grid);

}  // namespace gradwire::plan

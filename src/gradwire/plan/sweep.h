#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/predict/step_time.h"
#include "gradwire/report/line_plot.h"

namespace gradwire::plan {

/// Efficiency by number of nodes, for networks and algorithms.
struct Sweep {
  std::vector<int> nodes;
  /// One network with one algorithm: a step for each entry of `nodes`.
  struct Line {
    std::string network, algorithm;
    std::vector<StepTime> steps;
  };
  std::vector<Line> lines;
};

/// Returns FROM, its doublings, and TO, of "nodes=2..4096". Throws Exception(invalid_argument).
std::vector<int> parse_sweep(const std::string& text);

/// Each device keeps its batch, so the global batch grows with the nodes. With a codec or servers
/// the algorithm is fixed: one line per network. Measured communication applies to `input`'s own
/// network only.
Sweep sweep_nodes(const PlanInput& input, const std::vector<int>& nodes,
                  const std::vector<Network>& networks, const std::vector<std::string>& algorithms);

/// Efficiency in percent by nodes.
report::LinePlot plot_of(const Sweep& sweep, const std::string& title);
std::string table_of(const Sweep& sweep);
std::string to_json(const Sweep& sweep);

}  // namespace gradwire::plan

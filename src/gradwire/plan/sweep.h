#pragma once

#include <string>
#include <vector>

#include "gradwire/plan/step_time.h"
#include "gradwire/report/line_plot.h"

namespace gradwire {

/// How efficiency depends on the number of nodes, for networks and algorithms.
struct Sweep {
  std::vector<int> nodes;
  /// One network with one algorithm each; of each node count in `nodes` its step.
  struct Line {
    std::string network, algorithm;
    std::vector<StepTime> steps;
  };
  std::vector<Line> lines;
};

/// FROM, its doubles, and TO, of "nodes=2..4096". Throws Exception(invalid_argument).
std::vector<int> parse_sweep(const std::string& text);

/// Each device keeps its batch, so the global batch grows with the nodes. With a codec or servers
/// there is no choice of algorithms: one line a network. What was measured of communication is of
/// `input`'s own network, and so is only used for that.
Sweep sweep_nodes(const PlanInput& input, const std::vector<int>& nodes,
                  const std::vector<Network>& networks, const std::vector<std::string>& algorithms);

/// Efficiency in percent against nodes.
LinePlot plot_of(const Sweep& sweep, const std::string& title);
std::string table_of(const Sweep& sweep);
std::string to_json(const Sweep& sweep);

}  // namespace gradwire

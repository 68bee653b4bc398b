#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/plan/plan.h"

namespace gradwire {

/// The command line of `gradwire plan`, unparsed.
struct PlanArguments {
  std::string model = "resnet50", parameters;
  std::string network = "10gbe", device = "rtx4090", storage, memory, latency;
  int nics = 1;
  double utilization = 0, oversubscription = 1;
  Strategy strategy{.nodes = 4, .batch = 0, .overlap = Overlap::full};
  std::string precision, overlap = "full", optimizer = "adam";
  double step_ms = 0, comm_ms = 0;
  Prices prices{.samples = 0};

  bool explain = false, search = false;
  std::string json, html, sweep, plot;
  std::string check;  ///< See check_command.h; declared here only for --help.
  std::vector<std::string> networks, algorithms{"auto", "ring", "tree"};
  std::vector<std::string> codecs{"none", "bf16"};
};

/// Adds the options to a command line parser; `given` must outlive it.
void declare(CLI::App& app, PlanArguments& given);

/// Returns the input of the planner; the clock is used if the device is measured. Throws
/// Exception(invalid_argument) for an unknown name, with the nearest known one.
PlanInput plan_input(const PlanArguments& given, Clock& clock);

}  // namespace gradwire

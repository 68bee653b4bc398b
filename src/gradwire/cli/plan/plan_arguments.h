#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/plan/plan.h"

namespace gradwire::cli {

/// The command line of `gradwire plan`, unparsed.
struct PlanArguments {
  std::string model = "resnet50", parameters;
  std::string network = "10gbe", device = "rtx4090", storage, memory, latency;
  std::string engine = "own", bus_bandwidth;
  int nics = 1;
  double utilization = 0, oversubscription = 1;
  plan::Strategy strategy{.nodes = 4, .batch = 0, .overlap = step::Overlap::full};
  std::string servers = "0";  ///< Or "auto".
  std::string mode = "sync", place = "own";
  std::string precision, overlap = "full", optimizer = "adam";
  double step_ms = 0, comm_ms = 0;
  plan::Prices prices{.samples = 0};

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
plan::PlanInput plan_input(const PlanArguments& given, Clock& clock);

/// Asks for the model, the number of machines and the network, each until the answer is valid.
/// `ask` shows a prompt and returns the line read, or nullopt at the end of input; `tell` shows why
/// an answer is invalid. An empty answer takes the default. Returns nullopt if the input ends.
std::optional<PlanArguments> ask_for_plan(
    const std::function<std::optional<std::string>(const std::string&)>& ask,
    const std::function<void(const std::string&)>& tell);

}  // namespace gradwire::cli

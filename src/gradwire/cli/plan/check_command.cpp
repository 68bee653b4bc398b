#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/plan/simulate_options.h"
#include "gradwire/plan/check/phase_check.h"
#include "gradwire/plan/check/run_phases.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Maximum ratio of trained to planned gradient bytes: 16 or 32 bits, omitted layers.
constexpr double kAlike = 2.5;

int nodes_of(int ranks, int per_node) {
  if (ranks % per_node == 0) return ranks / per_node;
  refuse(
      "the run had {} ranks, which is not a multiple of {} ranks per node: "
      "give --nodes and --per-node",
      ranks, per_node);
}

/// Returns the options; those not given are taken from the run.
SimulateOptions options_for(const CLI::App& app, const SimulateOptions& given,
                            const plan::MeasuredRun& run) {
  SimulateOptions options = given;
  const auto left_out = [&](const char* name) { return app.count(name) == 0; };
  const plan::RunCase& how = run.how;
  if (left_out("--codec") && !how.codec.empty()) options.codec = how.codec;
  if (left_out("--overlap") && !how.overlap.empty()) options.overlap = how.overlap;
  if (left_out("--accumulate") && how.accumulate > 0) options.accumulate = how.accumulate;
  if (left_out("--local-steps") && how.local_steps > 0) {
    options.local_steps = how.local_steps;
    options.fragments = how.fragments;
    options.overlap_steps = how.overlap_steps;
  }
  if (left_out("--nodes") && how.ranks > 0) options.nodes = nodes_of(how.ranks, options.per_node);
  if (!left_out("--compute-ms")) return options;
  // Uses the measured compute time of the run: the prediction is then of communication.
  const double update = std::max(run.phases.update, 0.0);
  const double single = how.single > 0 ? how.single : run.phases.compute - update;
  options.compute_ms = 1e3 * single / options.accumulate;
  if (left_out("--update-ms")) options.update_ms = 1e3 * update;
  return options;
}

/// Checks that the trained model is about as large as the profile, unless --profile was given.
/// Throws Exception(invalid_argument).
void check_profile(const CLI::App& app, const workload::LayerProfile& profile,
                   const plan::MeasuredRun& run) {
  const double trained = run.how.gradient_bytes;
  const double planned = 4.0 * static_cast<double>(profile.parameters());
  const bool alike = trained > planned / kAlike && trained < planned * kAlike;
  if (app.count("--profile") > 0 || trained == 0 || alike) return;
  refuse(
      "the run's gradients have {:.4g} MB, those of {} {:.4g} MB: name the "
      "trained model with --profile (gradwire train --record-profile FILE "
      "writes it), and the links with --topology or --network",
      trained / 1e6, profile.name, planned / 1e6);
}

plan::StepPhases phases_of(const plan::SimulatedStep& step, const SimulateOptions& options) {
  plan::StepPhases phases;
  phases.forward = step.forward;
  phases.backward = step.backward;
  phases.update = 1e-3 * options.update_ms;
  phases.compute = step.single;
  phases.communication = step.in_flight;
  phases.exposed = step.exposed;
  phases.step = step.step;
  return phases;
}

Json json_of(const plan::MeasuredRun& run, const std::vector<plan::PhaseCheck>& checks) {
  Json phases = Json::array();
  for (const plan::PhaseCheck& check : checks) {
    phases.push_back({{"phase", check.phase},
                      {"predicted_ms", 1e3 * check.predicted},
                      {"measured_ms", 1e3 * check.measured}});
  }
  return {{"run", run.name}, {"step_error", plan::step_error(checks)}, {"phases", phases}};
}

}  // namespace

int plan_check_command(int argc, char** argv) {
  SimulateOptions given;
  std::string path;
  CLI::App app(
      "Compares a prediction with the measurements of a run, phase by phase. Codec, overlap, "
      "passes, ranks and compute time are those of the run, unless they are given here.",
      "gradwire plan --check RUN");
  app.add_option("--check", path,
                 "output of gradwire bench step --json or --trace, or of gradwire train --json, "
                 "--trace or --output")
      ->required();
  declare(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  Json all = Json::array();
  for (const plan::MeasuredRun& run : value_or_throw(plan::read_run(path))) {
    const SimulateOptions options = options_for(app, given, run);
    const SimulatedLinks links = links_of(options);
    const workload::LayerProfile profile = profile_of(options);
    check_profile(app, profile, run);
    const plan::SimulatedStep step = simulate(options, profile, links);
    const auto checks = plan::check_phases(phases_of(step, options), run.phases);
    all.push_back(json_of(run, checks));
    if (given.json == "-") continue;
    if (!run.name.empty()) fmt::print("{}\n", run.name);
    fmt::print("{}\n", plan::format_checks(checks));
  }
  const std::string text = Json{{"runs", all}}.dump(2) + "\n";
  if (given.json == "-") fmt::print("{}", text);
  if (given.json.empty() || given.json == "-") return 0;
  write_file(given.json, text);
  return 0;
}

}  // namespace gradwire::cli

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/plan/simulate_options.h"
#include "gradwire/plan/simulate/failures.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

void write(const SimulateOptions& options, const Json& json, const std::string& text) {
  if (options.json == "-") {
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("{}", text);
  if (!options.json.empty()) write_file(options.json, json.dump(2) + "\n");
}

int simulate_operation(const SimulateOptions& options) {
  const auto collective = schedule::collective_named(options.collective);
  if (!collective) {
    std::vector<std::string_view> known;
    for (const schedule::Collective one : schedule::all_collectives())
      known.push_back(name_of(one));
    refuse(unknown_name("collective", options.collective, known));
  }
  const SimulatedLinks links = links_of(options);
  const auto bytes = static_cast<double>(value_or_throw(parse_bytes(options.bytes)));
  const plan::OperationTime time = links.times(*collective, bytes);
  const Json json = {{"collective", options.collective},
                     {"bytes", bytes},
                     {"ranks", links.ranks},
                     {"algorithm", time.algorithm},
                     {"time_us", 1e6 * time.seconds},
                     {"port_us", 1e6 * time.port_seconds}};
  write(options, json,
        fmt::format("{} of {} by {} on {} ranks: {:.3f} ms, of which the busiest port sends or "
                    "receives for {:.3f} ms\n",
                    options.collective, format_bytes(static_cast<std::size_t>(bytes)),
                    time.algorithm, links.ranks, 1e3 * time.seconds, 1e3 * time.port_seconds));
  return 0;
}

Json step_json(const plan::SimulatedStep& step, int ranks) {
  return {{"ranks", ranks},
          {"step_ms", 1e3 * step.step},
          {"single_ms", 1e3 * step.single},
          {"forward_ms", 1e3 * step.forward},
          {"backward_ms", 1e3 * step.backward},
          {"exposed_ms", 1e3 * step.exposed},
          {"port_ms", 1e3 * step.port},
          {"eta", step.efficiency()}};
}

std::string step_text(const SimulateOptions& options, const plan::SimulatedStep& step, int ranks) {
  return fmt::format(
      "{} on {} ranks, {}, overlap {}: {:.1f} ms per step, {:.1f} ms alone, {:.1f} ms exposed; eta "
      "{:.1f} %; the port is busy for {:.1f} ms\n",
      options.profile, ranks, options.codec == "none" ? "fp32" : options.codec, options.overlap,
      1e3 * step.step, 1e3 * step.single, 1e3 * step.exposed, 100 * step.efficiency(),
      1e3 * step.port);
}

int simulate_training(const SimulateOptions& options) {
  const SimulatedLinks links = links_of(options);
  const plan::SimulatedStep step = simulate(options, profile_of(options), links);
  Json json = step_json(step, links.ranks);
  std::string text = step_text(options, step, links.ranks);
  if (options.failures_per_day > 0) {
    const plan::FailureCost cost =
        plan::failure_cost({options.failures_per_day, options.checkpoint_s, options.restart_s});
    json["checkpoint_interval_s"] = cost.interval;
    json["useful_share"] = cost.useful_share;
    json["eta_with_failures"] = cost.useful_share * step.efficiency();
    text += fmt::format(
        "{} failures per day: best checkpoint interval {:.0f} s, {:.1f} % of the time is useful; "
        "eta {:.1f} %\n",
        options.failures_per_day, cost.interval, 100 * cost.useful_share,
        100 * cost.useful_share * step.efficiency());
  }
  write(options, json, text);
  return 0;
}

}  // namespace

int plan_simulate_command(int argc, char** argv) {
  SimulateOptions options;
  CLI::App app(
      "Simulates a training step, an operation, or rounds with servers on modelled or measured "
      "links",
      "gradwire plan simulate");
  RoundOptions rounds;
  declare(app, options);
  declare(app, rounds);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  check_modelled(app, rounds);
  if (rounds.clients > 0 || rounds.servers > 0) {
    const RoundResult result = rounds.clients > 0 ? simulate_federated_rounds(options, rounds)
                                                  : simulate_server_rounds(options, rounds);
    write(options, result.json, result.text);
    return 0;
  }
  return options.collective.empty() ? simulate_training(options) : simulate_operation(options);
}

}  // namespace gradwire::cli

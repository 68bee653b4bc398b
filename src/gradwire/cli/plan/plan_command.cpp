#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/plan/plan_arguments.h"
#include "gradwire/plan/plan.h"
#include "gradwire/plan/plan_page.h"
#include "gradwire/plan/search.h"
#include "gradwire/plan/server_choice.h"
#include "gradwire/plan/sweep.h"

namespace gradwire::cli {
namespace {

constexpr std::size_t kShownStrategies = 5;
/// Nodes for --params: as in ZeRO's paper.
constexpr int kPaperNodes = 64;

/// Prints `text`, or `json` with --json -; writes the file of --json.
void answer(const PlanArguments& given, const std::string& text, const std::string& json) {
  fmt::print("{}", given.json == "-" ? json : text);
  if (!given.json.empty() && given.json != "-") write_file(given.json, json);
}

/// Returns the networks of --networks, or else the network of --network and two others. Number of
/// cards and oversubscription are the same for all.
std::vector<plan::Network> networks_of(const PlanArguments& given, const plan::PlanInput& input) {
  std::vector<plan::Network> networks;
  const auto add = [&](const std::string& name) {
    plan::Network& network = networks.emplace_back(plan::network_named(name));
    network.cards = given.nics;
    network.oversubscription = given.oversubscription;
  };
  for (const std::string& name : given.networks) add(name);
  if (!networks.empty()) return networks;
  networks.push_back(input.network);
  for (const char* other : {"1gbe", "10gbe", "100gbe", "ib_hdr"}) {
    if (networks.size() < 3 && other != input.network.name) add(other);
  }
  return networks;
}

void check_plot(const std::string& name) {
  if (name.empty() || name.ends_with(".svg") || name.ends_with(".html")) return;
  refuse("--plot {}: expected a name that ends with .svg or .html", name);
}

int sweep(const PlanArguments& given, const plan::PlanInput& input) {
  check_plot(given.plot);
  const plan::Sweep swept = plan::sweep_nodes(input, plan::parse_sweep(given.sweep),
                                              networks_of(given, input), given.algorithms);
  answer(given, plan::table_of(swept), to_json(swept));
  if (given.plot.empty()) return 0;
  const std::string svg =
      report::to_svg(plan::plot_of(swept, input.model.name + ": efficiency against nodes"));
  const bool page = given.plot.ends_with(".html");
  write_file(
      given.plot,
      page ? "<!doctype html><meta charset=\"utf-8\"><title>gradwire plan</title>\n" + svg : svg);
  return 0;
}

std::string strategies_text(const std::vector<plan::FoundStrategy>& found) {
  std::string text = fmt::format("{:>9}  {:>8}  {:>6}  {}\n", "samples/s", "GB", "eta", "strategy");
  for (std::size_t i = 0; i < std::min(kShownStrategies, found.size()); ++i) {
    const plan::FoundStrategy& f = found[i];
    const plan::Strategy& s = f.input.strategy;
    text += fmt::format(
        "{:>9.4g}  {:>8.3g}  {:>4.1f} %  ZeRO stage {}, codec {}, {} x batch {:g}{}\n",
        f.time.samples_per_second, f.memory.total() / 1e9, 100 * f.time.eta, s.zero_stage, s.codec,
        s.accumulate, s.batch, s.recompute ? ", recomputing activations" : "");
  }
  return text + "\nThe first as a configuration of gradwire train:\n";
}

int search(const PlanArguments& given, const plan::PlanInput& input) {
  const auto found = plan::search_strategies(input, {.codecs = given.codecs});
  if (found.empty()) {
    const plan::Plan plan = plan::make_plan(input);
    refuse(
        "{}. No ZeRO stage, batch size or recomputation of gradwire train makes it fit "
        "on {} nodes. {}",
        plan::memory_sentence(plan), input.strategy.nodes, plan::min_nodes_sentence(plan));
  }
  const std::string config = plan::train_config(found.front().input);
  answer(given, strategies_text(found) + config, config);
  return 0;
}

int plan(const PlanArguments& given, const plan::PlanInput& input) {
  const plan::Plan made = plan::make_plan(input, given.prices);
  if (!given.html.empty())
    write_file(given.html, value_or_throw(plan::plan_page(input, plan::default_grid(input))));
  answer(given, plan::to_text(made) + (given.explain ? plan::to_text(plan::explain(made)) : ""),
         to_json(made));
  if (made.can_fit) return 0;
  refuse(
      "{}. Not even ZeRO stage 3 with batch 1 and recomputed activations "
      "fits on {} nodes. {}",
      plan::memory_sentence(made), input.strategy.nodes, plan::min_nodes_sentence(made));
}

int choose_servers(const PlanArguments& given, const plan::PlanInput& input) {
  if (given.search || !given.sweep.empty() || !given.html.empty() || given.place != "own") {
    refuse(
        "--servers auto plans one strategy with several numbers and places of servers: leave out "
        "--sweep, --search, --html and --place");
  }
  servers::ServerPolicy policy;
  servers::set_mode(policy, given.mode);
  const plan::ServerChoices choices = plan::choose_servers(input, policy);
  answer(given, to_text(choices), to_json(choices));
  return 0;
}

int carry_out(const PlanArguments& given) {
  SteadyClock clock;
  const plan::PlanInput input = plan_input(given, clock);
  if (given.servers == "auto") return choose_servers(given, input);
  if (given.mode != "sync") {
    refuse(
        "--mode {} requires --servers auto: the other plans are of synchronous steps (gradwire "
        "plan simulate --servers {} --mode {} simulates others)",
        given.mode, given.servers, given.mode);
  }
  if (!given.sweep.empty()) return sweep(given, input);
  if (given.search) return search(given, input);
  return plan(given, input);
}

std::optional<std::string> ask_terminal(const std::string& prompt) {
  fmt::print("{}", prompt);
  std::fflush(stdout);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

int ask(const CLI::App& app) {
  if (::isatty(STDIN_FILENO) == 0) {
    fmt::print(stderr, "{}", app.help());
    return 2;
  }
  const auto given =
      ask_for_plan(ask_terminal, [](const std::string& what) { fmt::print("  {}\n", what); });
  return given ? carry_out(*given) : 2;
}

}  // namespace

// An invalid plan is an error of the command line.
int plan_command(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "simulate")
    return read_arguments([&] { return plan_simulate_command(argc - 1, argv + 1); });
  if (argc > 1 && std::string_view(argv[1]) == "place")
    return read_arguments([&] { return plan_place_command(argc - 1, argv + 1); });
  const auto checks = [](const std::string_view word) {
    return word == "--check" || word.starts_with("--check=");
  };
  if (std::any_of(argv + 1, argv + argc, checks))
    return read_arguments([&] { return plan_check_command(argc, argv); });
  PlanArguments given;
  CLI::App app(
      "Predicts how fast a model trains on a cluster, what limits it and what to change. Without "
      "options, asks for model, machines and network. gradwire plan simulate simulates a step on "
      "modelled links.",
      "gradwire plan");
  declare(app, given);
  if (argc < 2) return read_arguments([&] { return ask(app); });
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (!given.parameters.empty() && app.count("--nodes") == 0) given.strategy.nodes = kPaperNodes;
  return read_arguments([&] { return carry_out(given); });
}

}  // namespace gradwire::cli

#include "gradwire/plan/server_choice.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/simulate/server_training.h"

namespace gradwire::plan {
namespace {

constexpr int kMaxSimulated = 1024;
/// Gains below this do not count.
constexpr double kClearly = 1.01;

double gradient_bytes(const PlanInput& input) {
  const Strategy& s = input.strategy;
  return bytes_per_parameter(s.compute, s.optimizer).gradient *
         static_cast<double>(input.model.parameters());
}

/// Asynchronous workers that are equally fast, on this many servers.
void simulate_staleness(ServerChoice& choice, servers::ServerPolicy policy) {
  const Strategy& s = choice.input.strategy;
  policy.workers = s.nodes;
  // A part that a server has for the worker beside it does not travel.
  const double share = s.beside_workers ? (s.nodes - 1.0) / s.nodes : 1;
  const WireBytes wire = wire_bytes(s.codec, s.nodes);
  const double whole = share * gradient_bytes(choice.input);
  const double parameters = static_cast<double>(choice.input.model.parameters());
  ServerModel model{.policy = policy, .servers = s.servers};
  model.bytes = wire.coded ? share * wire.contribution * parameters : whole;
  model.pull_bytes = whole;
  model.worker_rate = model.server_rate = choice.input.network.goodput();
  model.latency = choice.input.network.latency;
  model.compute.median = choice.time.t_s;
  const int steps = std::max(20, 20'000 / s.nodes);
  const ServerTraining found = simulate_servers(model, steps, 1);
  choice.staleness = found.staleness;
  choice.staleness_p99 = found.staleness_p99;
}

ServerChoice choice_of(PlanInput input, int servers, bool beside_workers,
                       const servers::ServerPolicy& policy) {
  input.strategy.servers = servers;
  input.strategy.beside_workers = beside_workers;
  check_strategy(input.strategy);
  ServerChoice choice{.input = input, .time = step_time(input)};
  if (servers > 0 && policy.mode != servers::Mode::sync) simulate_staleness(choice, policy);
  return choice;
}

/// All-reduces need no more machines, and neither do servers beside workers.
bool is_preferred(const ServerChoice& one, const ServerChoice& other) {
  const bool adds = one.input.strategy.machines() > other.input.strategy.machines();
  return one.samples_per_second_of_a_machine() >
         (adds ? kClearly : 1) * other.samples_per_second_of_a_machine();
}

std::string bytes_text(double bytes) {
  return format_bytes(static_cast<std::size_t>(bytes));
}

std::string time_text(double seconds) {
  return format_duration(duration_of(seconds));
}

const char* place_of(const Strategy& s) {
  if (s.servers == 0) return "";
  return s.beside_workers ? "workers" : "own";
}

/// "4 servers beside the workers", "1 server", "no servers, but all-reduces (ring)".
std::string name_of(const ServerChoice& choice) {
  const Strategy& s = choice.input.strategy;
  if (s.servers == 0) return fmt::format("no servers, but all-reduces ({})", choice.time.algorithm);
  return fmt::format("{} server{}{}", s.servers, s.servers == 1 ? "" : "s",
                     s.beside_workers ? " beside the workers" : " on machines of their own");
}

/// The advantage of a ring over servers on machines of their own.
std::string reason_for_all_reduce(const ServerChoices& choices) {
  const PlanInput& input = choices.all.front().input;
  const int workers = input.strategy.nodes;
  const double bytes = gradient_bytes(input);
  std::string text = fmt::format(
      "A ring moves 2 G (W-1)/W = {} through each port, for G = {} and W = {}.\n"
      "k servers move 2 G max(1, W/k), at least {}, through the busiest port, and need k more "
      "machines,\non which a ring would train too. Servers beside the workers move as much as a "
      "ring.\n",
      bytes_text(2 * bytes * (workers - 1) / workers), bytes_text(bytes), workers,
      bytes_text(2 * bytes));
  if (input.strategy.codec != "none") {
    text += "That is without the codec, which is of both ways of an all-reduce, and of pushes.\n";
  }
  return text;
}

std::string reason_for_servers(const ServerChoices& choices) {
  const ServerChoice &best = choices.all[choices.best], &ring = choices.all.front();
  return fmt::format(
      "Gradients and parameters take {} where the all-reduce ({}) takes {}:\n"
      "a push and a pull are two hops, whatever the number of workers.\n",
      time_text(best.time.t_c), ring.time.algorithm, time_text(ring.time.t_c));
}

std::string conclusion(const ServerChoices& choices) {
  const ServerChoice& best = choices.all[choices.best];
  const bool is_all_reduce = best.input.strategy.servers == 0;
  std::string text =
      fmt::format("\nBest: {}, {:.4g} samples/s of each machine.\n{}", name_of(best),
                  best.samples_per_second_of_a_machine(),
                  is_all_reduce ? reason_for_all_reduce(choices) : reason_for_servers(choices));
  const auto fastest = std::ranges::min_element(
      choices.all, {}, [](const ServerChoice& choice) { return choice.time.step; });
  if (best.time.step > kClearly * fastest->time.step) {
    text += fmt::format("The fastest step has {}, with {} machines in place of {}.\n",
                        name_of(*fastest), fastest->input.strategy.machines(),
                        best.input.strategy.machines());
  }
  if (choices.policy.mode != servers::Mode::sync) {
    text += fmt::format(
        "Times are of synchronous steps, and workers equally fast. Where their compute differs,\n"
        "not all wait for the slowest in mode {}: gradwire plan simulate --servers K --mode {} "
        "--spread S\n",
        mode_text(choices.policy), mode_text(choices.policy));
  }
  return text;
}

}  // namespace

ServerChoices choose_servers(const PlanInput& input, const servers::ServerPolicy& policy) {
  const int nodes = input.strategy.nodes;
  if (nodes < 2) refuse("--servers auto requires at least 2 nodes: one exchanges no gradients");
  if (policy.mode != servers::Mode::sync && nodes > kMaxSimulated) {
    refuse("--servers auto simulates mode {} of at most {} nodes, not {}: use --mode sync",
           mode_text(policy), kMaxSimulated, nodes);
  }
  ServerChoices choices{.policy = policy};
  choices.all.push_back(choice_of(input, 0, false, policy));
  for (int servers = 1; servers < nodes; servers *= 2) {
    choices.all.push_back(choice_of(input, servers, false, policy));
  }
  choices.all.push_back(choice_of(input, nodes, false, policy));
  choices.all.push_back(choice_of(input, nodes, true, policy));
  for (std::size_t i = 1; i < choices.all.size(); ++i) {
    if (is_preferred(choices.all[i], choices.all[choices.best])) choices.best = i;
  }
  return choices;
}

std::string to_text(const ServerChoices& choices) {
  const bool has_staleness = choices.policy.mode != servers::Mode::sync;
  std::string text =
      fmt::format("{:>7} {:>8} {:>10} {:>10} {:>12} {:>9} {:>10} {:>10}{}\n", "servers", "place",
                  "step", "exposed", "busiest port", "machines", "samples/s", "a machine",
                  has_staleness ? "  staleness   p99" : "");
  for (const ServerChoice& choice : choices.all) {
    const Strategy& s = choice.input.strategy;
    const StepTime& t = choice.time;
    text +=
        fmt::format("{:>7} {:>8} {:>10} {:>10} {:>12} {:>9} {:>10.4g} {:>10.4g}", s.servers,
                    place_of(s), time_text(t.step), time_text(t.exposed), bytes_text(t.wire_bytes),
                    s.machines(), t.samples_per_second, choice.samples_per_second_of_a_machine());
    if (has_staleness && s.servers > 0) {
      text += fmt::format("  {:>9.2f} {:>5}", choice.staleness, choice.staleness_p99);
    }
    text += "\n";
  }
  return text + conclusion(choices);
}

std::string to_json(const ServerChoices& choices) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const ServerChoice& choice : choices.all) {
    const Strategy& s = choice.input.strategy;
    Json& row = rows.emplace_back(
        Json{{"servers", s.servers},
             {"place", place_of(s)},
             {"algorithm", choice.time.algorithm},
             {"step_ms", 1e3 * choice.time.step},
             {"exposed_ms", 1e3 * choice.time.exposed},
             {"wire_bytes", choice.time.wire_bytes},
             {"machines", s.machines()},
             {"samples_per_second", choice.time.samples_per_second},
             {"samples_per_second_of_a_machine", choice.samples_per_second_of_a_machine()}});
    if (choices.policy.mode == servers::Mode::sync || s.servers == 0) continue;
    row["staleness"] = choice.staleness;
    row["staleness_p99"] = choice.staleness_p99;
  }
  return Json{{"mode", mode_text(choices.policy)}, {"choices", rows}, {"best", choices.best}}.dump(
             2) +
         "\n";
}

}  // namespace gradwire::plan

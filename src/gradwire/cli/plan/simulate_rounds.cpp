#include "gradwire/cli/plan/simulate_rounds.h"

#include <fmt/format.h>

#include "gradwire/base/units.h"
#include "gradwire/cli/plan/simulate_options.h"

namespace gradwire {

void declare(CLI::App& app, RoundOptions& options) {
  app.add_option("--servers", options.servers, "parameter servers, in place of all-reduces")
      ->check(CLI::Range(0, 16384));
  app.add_flag("--asynchronous", options.asynchronous, "workers do not wait for each other");
  app.add_option("--clients", options.clients, "federated learning: clients that could participate")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--asked", options.asked, "clients asked in each round")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--used", options.used, "answers used in each round, the first to arrive")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--window-s", options.window_s, "seconds after which a round ends")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dropout", options.dropout, "share of the asked clients that never answer")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--up", options.up, "median uplink rate of a client")->capture_default_str();
  app.add_option("--down", options.down, "median downlink rate of a client")->capture_default_str();
  app.add_option("--spread", options.spread,
                 "standard deviation of the logarithms of workers' or clients' times and rates")
      ->check(CLI::Range(0.0, 5.0))
      ->capture_default_str();
  app.add_option("--rounds", options.steps, "number of rounds to simulate")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
}

RoundResult simulate_server_rounds(const SimulateOptions& step, const RoundOptions& options) {
  const LayerProfile profile = profile_of(step);
  const Fabric fabric = fabric_of(step);
  ServerModel model{.workers = fabric.ranks(), .servers = options.servers};
  model.bytes = static_cast<double>(profile.parameters() * sizeof(float));
  model.worker_rate = fabric.port.bytes_per_second / fabric.ranks_per_host;
  model.server_rate = fabric.port.bytes_per_second;
  model.latency = std::chrono::duration<double>(fabric.port.latency).count();
  model.compute = {step_model_of(step, profile).compute, options.spread};
  model.asynchronous = options.asynchronous;
  const ServerTraining found = simulate_servers(model, options.steps, options.seed);
  return {{{"workers", model.workers},
           {"servers", model.servers},
           {"asynchronous", model.asynchronous},
           {"step_ms", 1e3 * found.step},
           {"updates_per_second", found.updates_per_second},
           {"staleness", found.staleness},
           {"largest_staleness", found.max_staleness},
           {"server_busy", found.server_busy},
           {"eta", model.compute.median / found.step}},
          fmt::format(
              "{} workers, {} servers, {}: {:.1f} ms per step, {:.1f} updates per second, mean "
              "staleness {:.1f} updates, maximum {:.0f}; servers receive {:.0f} % of the time\n",
              model.workers, model.servers, model.asynchronous ? "asynchronous" : "synchronous",
              1e3 * found.step, found.updates_per_second, found.staleness, found.max_staleness,
              100 * found.server_busy)};
}

RoundResult simulate_federated_rounds(const SimulateOptions& step, const RoundOptions& options) {
  const LayerProfile profile = profile_of(step);
  FederatedModel model{.clients = options.clients,
                       .asked = options.asked,
                       .used = options.used,
                       .window = options.window_s};
  model.compute = {step_model_of(step, profile).compute, options.spread};
  model.up = {value_or_throw(parse_rate(options.up)), options.spread};
  model.down = {value_or_throw(parse_rate(options.down)), options.spread};
  model.model_bytes = static_cast<double>(profile.parameters() * sizeof(float));
  model.update_bytes = model.model_bytes;
  model.server_rate = fabric_of(step).port.bytes_per_second;
  model.dropout = options.dropout;
  const FederatedRounds found = simulate_federated(model, options.steps, options.seed);
  return {
      {{"clients", model.clients},
       {"asked", model.asked},
       {"round_s", found.round},
       {"used", found.used},
       {"wasted_share", found.wasted_share},
       {"short_rounds", found.short_rounds},
       {"server_bytes", found.server_bytes},
       {"fairness", found.fairness}},
      fmt::format(
          "{} of {} clients asked: a round takes {:.1f} s and uses {:.1f} updates, {:.1f} % of the "
          "clients' work is wasted, {:.0f} % of the rounds end by timeout; fairness {:.2f}\n",
          model.asked, model.clients, found.round, found.used, 100 * found.wasted_share,
          100 * found.short_rounds, found.fairness)};
}

}  // namespace gradwire

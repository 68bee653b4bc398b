#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/recipe/federated_run.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

struct FederateOptions {
  std::string config;
  std::vector<std::string> settings, sweeps;
  std::string json, checkpoint, resume;
  std::int64_t checkpoint_every = 0;
  int threads = 0;
  double target = 0;
  bool protocol_only = false;
};

void declare(CLI::App& app, FederateOptions& options) {
  app.add_option("CONFIG", options.config, "JSON file (docs/federated.md)")->required();
  app.add_option("--set", options.settings,
                 "replaces a value of the configuration, such as round.use=50; repeatable");
  app.add_option("--threads", options.threads,
                 "threads that train; 0: one for each usable core. Results do not depend on it")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--json", options.json, "file for rounds and fairness as JSON");
  CLI::Option* const target =
      app.add_option("--target", options.target,
                     "accuracy, such as 0.83, for which rounds and bytes are counted")
          ->check(CLI::Range(0.0, 1.0));
  CLI::Option* const sweep =
      app.add_option("--sweep", options.sweeps,
                     "runs each of these values, such as local.epochs=1,5; repeated options are "
                     "combined; prints rounds and bytes to --target")
          ->needs(target);
  CLI::Option* const checkpoint = app.add_option("--checkpoint", options.checkpoint,
                                                 "file to go on from: model, optimizer and rounds")
                                      ->excludes(sweep);
  app.add_option("--checkpoint-every", options.checkpoint_every, "rounds between two writes of it")
      ->check(CLI::PositiveNumber)
      ->needs("--checkpoint");
  // The rounds before it are not known any more, so that none can be counted to a target.
  CLI::Option* const resume = app.add_option("--resume", options.resume,
                                             "checkpoint of an earlier run of this configuration")
                                  ->excludes(target)
                                  ->excludes(sweep);
  app.add_flag("--protocol-only", options.protocol_only,
               "simulates rounds, devices and networks, and trains nothing")
      ->excludes(target)
      ->excludes(sweep)
      ->excludes(checkpoint)
      ->excludes(resume)
      ->excludes(app.get_option("--threads"));
}

void write_json(const FederateOptions& options, const Json& json) {
  if (!options.json.empty()) write_file(options.json, json.dump(1) + "\n");
}

std::string target_text(const recipe::Target& target, double accuracy) {
  if (std::isnan(target.rounds)) return fmt::format("{:.1f} % was not reached", 100 * accuracy);
  return fmt::format("{:.1f} % after {:.1f} rounds, {} up and {} down", 100 * accuracy,
                     target.rounds, format_bytes(static_cast<std::size_t>(target.up_bytes)),
                     format_bytes(static_cast<std::size_t>(target.down_bytes)));
}

Json target_json(const recipe::Target& target, double accuracy) {
  if (std::isnan(target.rounds)) return {{"accuracy", accuracy}, {"rounds", nullptr}};
  return {{"accuracy", accuracy},
          {"rounds", target.rounds},
          {"up_bytes", target.up_bytes},
          {"down_bytes", target.down_bytes}};
}

/// Every combination of one value of each sweep, as settings.
std::vector<std::vector<std::string>> combinations(const std::vector<std::string>& sweeps) {
  std::vector<std::vector<std::string>> all{{}};
  for (const std::string& sweep : sweeps) {
    const auto equals = sweep.find('=');
    if (equals == std::string::npos || equals + 1 == sweep.size())
      refuse("--sweep {}: expected KEY=VALUE,VALUE", sweep);
    std::vector<std::vector<std::string>> longer;
    for (const auto& before : all) {
      for (std::size_t at = equals + 1; at <= sweep.size();) {
        const std::size_t comma = std::min(sweep.find(',', at), sweep.size());
        longer.push_back(before);
        longer.back().push_back(sweep.substr(0, equals + 1) + sweep.substr(at, comma - at));
        at = comma + 1;
      }
    }
    all = std::move(longer);
  }
  return all;
}

recipe::FederatedConfig load(const FederateOptions& options,
                             const std::vector<std::string>& more = {}) {
  std::vector<std::string> settings = options.settings;
  settings.insert(settings.end(), more.begin(), more.end());
  return read_arguments([&] {
    return recipe::load_federated_config(options.config, settings, recipe::FederatedUse::simulate);
  });
}

int run_sweep(const FederateOptions& options) {
  if (!options.json.empty()) check_writable(options.json);
  Json rows = Json::array();
  for (const auto& settings : combinations(options.sweeps)) {
    const recipe::FederatedConfig config = load(options, settings);
    const auto federation = recipe::make_federation(config, options.threads);
    const FederationResult result = federation->run();
    const recipe::Target target = recipe::reached(result.rounds, options.target);
    const double last = recipe::accuracy_of(result.rounds.back());
    if (std::isnan(last)) {
      refuse(
          "--sweep and --target need an accuracy: there are no test data, and partition.held_out "
          "is "
          "0");
    }
    fmt::print("{}: {}; {:.2f} % after {} rounds\n", fmt::join(settings, " "),
               target_text(target, options.target), 100 * last, result.rounds.size());
    std::fflush(stdout);
    rows.push_back({{"settings", settings},
                    {"target", target_json(target, options.target)},
                    {"last_accuracy", last}});
  }
  write_json(options, {{"sweep", std::move(rows)}});
  return 0;
}

int run_protocol(const FederateOptions& options) {
  const recipe::FederatedConfig config = load(options);
  if (!options.json.empty()) check_writable(options.json);
  const FederationResult result = recipe::simulate_protocol(config);
  std::cout << recipe::result_text(result) << std::flush;
  write_json(options, recipe::result_json(result));
  return 0;
}

/// A line for each round; on a terminal, one line that is overwritten.
class RoundPrinter {
 public:
  void print(const FederationRound& round) {
    if (!is_terminal_) {
      fmt::print(stderr, "{}\n", recipe::round_text(round));
      return;
    }
    fmt::print(stderr, "\r\x1b[K{}", recipe::round_text(round));
    is_open_ = true;
  }
  ~RoundPrinter() {
    if (is_open_) fmt::print(stderr, "\n");
  }

 private:
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool is_open_ = false;
};

FederationResult run_rounds(const FederateOptions& options, Federation& federation) {
  RoundPrinter printer;
  std::int64_t rounds = 0;
  return federation.run([&](const FederationRound& round) {
    printer.print(round);
    ++rounds;
    const bool is_due = options.checkpoint_every > 0 && rounds % options.checkpoint_every == 0;
    if (!options.checkpoint.empty() && (is_due || federation.ended()))
      federation.save(options.checkpoint);
  });
}

int run_simulation(const FederateOptions& options) {
  const recipe::FederatedConfig config = load(options);
  if (!options.json.empty()) check_writable(options.json);
  if (!options.checkpoint.empty()) check_writable(options.checkpoint);
  const auto federation = recipe::make_federation(config, options.threads);
  if (!options.resume.empty()) federation->load(options.resume);
  if (federation->ended())
    refuse("{} has all {} rounds: there is nothing left to simulate", options.resume,
           config.rounds);
  fmt::print("{}\n", recipe::widths_text(config, *federation));
  std::fflush(stdout);
  const SteadyClock clock;
  const Time begin = clock.now();
  const FederationResult result = run_rounds(options, *federation);
  std::cout << recipe::result_text(result);
  Json json = recipe::result_json(result);
  if (options.target > 0) {
    const recipe::Target target = recipe::reached(result.rounds, options.target);
    std::cout << target_text(target, options.target) << "\n";
    json["target"] = target_json(target, options.target);
  }
  const double elapsed = seconds(clock.now() - begin);
  std::int64_t trained = 0;
  for (const FederationRound& round : result.rounds) trained += round.record.used;
  std::cout << fmt::format("{:.1f} s on this machine: {:.1f} clients trained per second\n", elapsed,
                           static_cast<double>(trained) / elapsed)
            << std::flush;
  json["elapsed_s"] = elapsed;
  write_json(options, json);
  return 0;
}

}  // namespace

int federate_simulate_command(int argc, char** argv) {
  FederateOptions options;
  CLI::App app(
      "Simulates federated learning: rounds of many clients, in virtual time, in this "
      "process",
      "gradwire federate simulate");
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (options.protocol_only) return run_protocol(options);
  return options.sweeps.empty() ? run_simulation(options) : run_sweep(options);
}

}  // namespace gradwire::cli

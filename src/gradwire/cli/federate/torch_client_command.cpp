#include <charconv>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/host/group.h"
#include "gradwire/recipe/federated_data.h"
#include "gradwire/recipe/federated_run.h"
#include "gradwire/recipe/federated_serve.h"
#include "gradwire/torch/init.h"

namespace gradwire::cli {
namespace {

struct ClientArguments {
  FederatedClientOptions client;
  std::string identity, data, part, power;
  std::string round_up, day_up, round_down, day_down, memory;
};

void declare_limits(CLI::App& app, ClientArguments& given) {
  FederatedLimits& limits = given.client.limits;
  const auto number = [&](const char* name, double& value, const char* text) {
    app.add_option(name, value, text)->check(CLI::NonNegativeNumber);
  };
  number("--limit-seconds", limits.round_seconds, "seconds of compute in a round, at most");
  number("--limit-seconds-day", limits.day_seconds, "seconds of compute in a day (UTC)");
  app.add_option("--limit-up", given.round_up, "bytes up in a round, such as 10MB");
  app.add_option("--limit-up-day", given.day_up, "bytes up in a day");
  app.add_option("--limit-down", given.round_down, "bytes down in a round");
  app.add_option("--limit-down-day", given.day_down, "bytes down in a day");
  app.add_option("--limit-memory", given.memory, "memory that the model may need, such as 2GB");
}

void declare_client(CLI::App& app, ClientArguments& given) {
  app.add_option("IDENTITY", given.identity, "this client's file, of gradwire federate enrol")
      ->required();
  app.add_option("--data", given.data,
                 "this client's data: a folder of IDX files, or the text file");
  app.add_option("--part", given.part,
                 "K/N: only part K of the N in which the server's configuration divides the data, "
                 "for demonstrations");
  app.add_option("--server", given.client.server, "HOST:PORT; default: that of the identity");
  app.add_option("--power", given.power,
                 "plugged: takes part only while this machine is plugged in")
      ->check(CLI::IsMember({"any", "plugged"}));
  app.add_option("--eligible", given.client.eligible,
                 "shell command: takes part only while it exits with status 0");
  app.add_option("--give-up", given.client.give_up_seconds,
                 "seconds without the server, after which the client ends")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  SecureUploads& secure = given.client.secure;
  app.add_flag("--secure", secure.required,
               "uploads under secure aggregation alone: nothing that the server could read");
  app.add_flag("--secure-active", secure.active,
               "implies --secure, and protects from a server that lies; keys and lists are signed");
  app.add_option("--secure-threshold", secure.least_threshold,
                 "implies --secure; the least threshold T, default 2: a sum contains the updates "
                 "of at least T other clients")
      ->check(CLI::Range(2, 1'000'000));
  declare_limits(app, given);
}

void take_bytes(const std::string& text, double& limit) {
  if (!text.empty()) limit = static_cast<double>(value_or_throw(parse_bytes(text)));
}

FederatedClientOptions options_of(const ClientArguments& given) {
  FederatedClientOptions options = given.client;
  FederatedLimits& limits = options.limits;
  take_bytes(given.round_up, limits.round_up_bytes);
  take_bytes(given.day_up, limits.day_up_bytes);
  take_bytes(given.round_down, limits.round_down_bytes);
  take_bytes(given.day_down, limits.day_down_bytes);
  double memory = 0;
  take_bytes(given.memory, memory);
  limits.memory_bytes = static_cast<std::int64_t>(memory);
  options.identity = given.identity;
  options.plugged = given.power == "plugged";
  options.optimizer = recipe::optimizer_from_json;
  return options;
}

struct Part {
  std::int64_t number = 0, count = 0;
};

std::optional<Part> part_in(const std::string& text) {
  if (text.empty()) return std::nullopt;
  Part part;
  const char* const end = text.data() + text.size();
  const char* const slash = std::from_chars(text.data(), end, part.number).ptr;
  const bool is_right = slash != end && *slash == '/' &&
                        std::from_chars(slash + 1, end, part.count).ptr == end &&
                        part.number >= 1 && part.number <= part.count;
  if (!is_right) refuse("--part {}: expected K/N with K from 1 to N, such as 3/10", text);
  return part;
}

recipe::ClientData load_client_data(const recipe::FederatedConfig& config,
                                    const std::optional<Part>& part) {
  if (!part) return recipe::whole_data(config);
  if (part->count != config.partition.clients) {
    refuse("--part {}/{}: the server's configuration divides the data among {} clients",
           part->number, part->count, config.partition.clients);
  }
  return recipe::part_of(config, part->number - 1);
}

void print_client_round(const ClientRound& round) {
  std::string text =
      fmt::format("round {}  {} of {} steps", round.round, round.steps, round.all_steps);
  if (round.before.samples > 0)
    text += fmt::format("  accuracy before {:.2f} %", 100 * round.before.accuracy());
  fmt::print("{}  {}\n", text, round.counted ? "counted" : "not counted: " + round.reason);
  std::fflush(stdout);
}

/// The ranks that are this client together; null if it is a single process.
ProcessGroup group_of_job() {
  const bootstrap::Job job = bootstrap::Job::from_environment();
  return job.world_size > 1 ? init(job) : nullptr;
}

/// The server's configuration, which rank 0 asks for.
std::string configuration_of(FederatedClient& client, const ProcessGroup& group) {
  if (!group) return client.configuration();
  std::string configuration;
  run_or_abort(*group, [&] {
    const bool leads = group->getRank() == 0;
    configuration = gather_texts(*group, leads ? client.configuration() : "").front();
  });
  return configuration;
}

}  // namespace

int federate_client_command(int argc, char** argv) {
  ClientArguments given;
  CLI::App app("Takes part in federated learning with data that stay here",
               "gradwire federate client");
  declare_client(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const std::optional<Part> part = read_arguments([&] { return part_in(given.part); });
  FederatedClientOptions options = read_arguments([&] { return options_of(given); });
  options.group = group_of_job();
  const bool prints = !options.group || options.group->getRank() == 0;
  FederatedClient client(options);
  const auto config = recipe::client_config(configuration_of(client, options.group), given.data);
  const TrainableModule module = recipe::make_module(config);
  const recipe::ClientData data = load_client_data(config, part);
  if (prints) {
    fmt::print("{} samples to train, {} held out\n", data.own.train.total(),
               data.own.held_out.total());
    std::fflush(stdout);
  }
  const std::int64_t counted = client.run(module, data.data, data.own, print_client_round);
  if (prints) fmt::print("the server has no more rounds; this client counted in {}\n", counted);
  return 0;
}

}  // namespace gradwire::cli

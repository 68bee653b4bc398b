#include "gradwire/recipe/servers_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/servers/unit_codecs.h"

namespace gradwire::recipe {
namespace {

/// The text of servers::set_mode().
std::string mode_of(JsonFields& json) {
  const std::string mode = json.text_or("mode", "sync");
  if (mode != "ssp") {
    servers::ServerPolicy policy;
    servers::set_mode(policy, mode);
    if (json.has("staleness")) {
      refuse("servers.staleness needs servers.mode \"ssp\", not \"{}\"", mode);
    }
    return mode;
  }
  constexpr std::int64_t kManySteps = 1'000'000;
  return fmt::format("ssp:{}", json.integer("staleness", 0, kManySteps));
}

std::vector<std::string> read_units(JsonFields& json, const ServersConfig& servers) {
  std::vector<std::string> units = json.texts_or("units", "");
  if (units.empty() || std::ranges::count(units, "") > 0) {
    json.refuse("units",
                "a name of a parameter or a module, such as \"embedding\", or a list of them");
  }
  if (servers.deals()) {
    refuse(
        "servers.units are asynchronous beside synchronous ones, and with servers.mode \"{}\" and "
        "use {} none is synchronous: leave them out, or choose mode \"sync\" with use 1",
        servers.mode, servers.use);
  }
  return units;
}

ServedRowsConfig read_served_rows(JsonFields json) {
  ServedRowsConfig rows{.enabled = true};
  rows.staleness = json.integer_or("staleness", 0, 0, 1000);
  rows.optimizer = json.choice_or("optimizer", rows.optimizer, {"sgd", "adagrad"});
  rows.learning_rate = json.number_or("learning_rate", rows.learning_rate, 0, 1e6);
  json.refuse_others();
  return rows;
}

/// Servers that step with different gradients have no norms in common.
void check_norms_over_servers(const TrainConfig& config) {
  const std::string key = norms_over_servers(config);
  if (key.empty()) return;
  if (!config.servers.units.empty()) {
    refuse(
        "{} takes norms of one step's gradients, of which servers.units have none in common; "
        "leave one of them out",
        key);
  }
  if (!config.servers.deals()) return;
  const std::string rule = config.servers.mode == "sync"
                               ? fmt::format("servers.use {}", config.servers.use)
                               : fmt::format("servers.mode \"{}\"", config.servers.mode);
  refuse(
      "{} takes norms of one step's gradients over all servers, and with {} each server steps with "
      "the gradients that reach it; use servers.mode \"sync\" with servers.use 1",
      key, rule);
}

/// A log of the order of updates has no state but that of its own run.
void check_order_log(const TrainConfig& config) {
  if (config.servers.log.empty()) return;
  if (!config.servers.deals()) {
    refuse(
        "servers.log is of modes in which chance decides the order of updates: in mode \"sync\" "
        "with use 1 another run of this configuration has the same bits; leave it out");
  }
  const auto with = [](const char* key) {
    refuse("{} is incompatible with servers.log, which could not be replayed; leave one out", key);
  };
  if (config.local_steps.enabled) with("local_steps");
  if (config.servers.groups > 0) with("servers.groups");
  if (config.servers.pull_codec != "none") with("servers.pull_codec");
  if (!config.resume.empty()) with("resume");
  if (config.parallel.codec != "none") with("parallel.codec");
}

void check_served_codecs(const TrainConfig& config) {
  const std::string& codec =
      config.local_steps.enabled ? config.local_steps.codec : config.parallel.codec;
  servers::check(servers::CodecSettings{.push = codec, .pull = config.servers.pull_codec});
}

/// Weights and times of steps that not all gradients are part of.
void check_late_gradients(const TrainConfig& config) {
  const ServersConfig& servers = config.servers;
  if (servers.grace > 0 && servers.use == 1) {
    refuse(
        "servers.grace is of steps that do not wait for all gradients: omit it, or set "
        "servers.use");
  }
  if (!servers.weighs_samples) return;
  if (!servers.deals()) {
    refuse(
        "servers.weights \"samples\" is of workers that take different numbers of samples: omit "
        "it, "
        "or choose another servers.mode, or servers.use below 1");
  }
  const auto with = [](const char* key) {
    refuse("{} is incompatible with servers.weights \"samples\"; leave one of them out", key);
  };
  if (servers.groups > 0) with("servers.groups");
  if (!servers.log.empty()) with("servers.log");
}

/// A mirror has the values and states of another server, and nothing else.
void check_mirrors(const TrainConfig& config) {
  const ServersConfig& servers = config.servers;
  if (servers.mirror_every == 0) return;
  if (servers.mode == "sync") {
    refuse(
        "servers.mirror_every is of the modes \"ssp\" and \"async\", in which a job goes on "
        "without "
        "a lost rank; in mode \"sync\" use checkpoint_every");
  }
  if (servers.count == 1) {
    refuse(
        "servers.mirror_every needs two servers, of which each mirrors another one; set "
        "servers.count");
  }
  const auto with = [](const char* key) {
    refuse("{} is incompatible with servers.mirror_every; leave one of them out", key);
  };
  if (servers.groups > 0) with("servers.groups");
  if (servers.pull_codec != "none") with("servers.pull_codec");
  if (config.parallel.codec != "none") with("parallel.codec");
  if (config.local_steps.enabled && config.local_steps.codec != "none") with("local_steps.codec");
  if (!servers.log.empty()) with("servers.log");
}

void check_served_rows(const TrainConfig& config) {
  if (!config.servers.rows.enabled) return;
  const auto with_rows = [](const std::string& key) {
    refuse("{} is incompatible with servers.embeddings; leave one of them out", key);
  };
  if (config.model.name != "dlrm") with_rows("model " + config.model.name + ", without a table,");
  if (config.local_steps.enabled) with_rows("local_steps");
  if (config.accumulation_steps > 1) with_rows("accumulation_steps");
  if (config.gradient_clipping > 0) with_rows("gradient_clipping");
}

}  // namespace

ServersConfig read_servers(JsonFields json) {
  ServersConfig servers{.enabled = true};
  servers.beside_workers = json.choice_or("place", "own", {"own", "workers"}) == "workers";
  servers.count = servers.beside_workers ? json.integer_or("count", 0, 0, kMaxRanks)
                                         : json.integer_or("count", 1, 1, kMaxRanks - 1);
  servers.mode = mode_of(json);
  servers.use = json.number_or("use", 1, 0, 1);
  servers.grace = json.number_or("grace", 0, 0, 3600);
  servers.weighs_samples = json.choice_or("weights", "equal", {"equal", "samples"}) == "samples";
  servers.groups = json.integer_or("groups", 0, 1, kMaxRanks);
  servers.groups_beyond_8 = json.flag_or("groups_beyond_8", false);
  servers.pull_every = json.integer_or("pull_every", 1, 1, 1'000'000);
  servers.pull_codec = json.text_or("pull_codec", servers.pull_codec);
  servers.rate = json.text_or("rate", servers.rate);
  servers::parse_rate_rule(servers.rate);
  servers.scale = json.number_or("scale", 1, 1e-6, 1);
  servers.log = json.text_or("log", "");
  servers.mirror_every = json.integer_or("mirror_every", 0, 1, 1'000'000);
  if (json.has("units")) servers.units = read_units(json, servers);
  if (json.has("embeddings")) {
    for (const auto* key :
         {"mode", "staleness", "use", "grace", "weights", "groups", "groups_beyond_8", "pull_every",
          "pull_codec", "rate", "scale", "log", "units", "mirror_every"}) {
      if (!json.has(key)) continue;
      refuse(
          "servers.{} is of dense parameters, which all-reduces average with "
          "servers.embeddings; leave one of them out",
          key);
    }
    servers.rows = read_served_rows(json.object_or_empty("embeddings"));
  }
  json.refuse_others();
  return servers;
}

/// Workers see their own gradients only, and servers their parts of the parameters.
void check_servers(const TrainConfig& config) {
  if (!config.servers.enabled) return;
  check_order_log(config);
  const auto with = [](const std::string& key) {
    refuse("{} is incompatible with servers; leave one of them out", key);
  };
  if (config.zero.stage > 0) with("zero");
  if (config.uses_pipeline()) with("mesh (or model.tie_word_embeddings)");
  if (config.local_steps.enabled) {
    if (config.servers.pull_every > 1) with("local_steps with servers.pull_every");
    if (!config.servers.units.empty()) with("local_steps with servers.units");
  }
  check_late_gradients(config);
  check_mirrors(config);
  check_served_codecs(config);
  if (config.parallel.check_finite) with("parallel.check_finite");
  if (config.parallel.find_unused_parameters) with("parallel.find_unused_parameters");
  if (config.precision == Precision::fp16) with("precision \"fp16\", whose loss scale is global,");
  check_norms_over_servers(config);
  check_served_rows(config);
}

void check_groups(const ServersConfig& config, int workers) {
  if (config.groups == 0) return;
  servers::ServerPolicy policy;
  servers::set_mode(policy, config.mode);
  const servers::Groups groups{static_cast<int>(config.groups), config.groups_beyond_8};
  servers::workers_per_group(groups, workers, policy.mode);
}

std::string norms_over_servers(const TrainConfig& config) {
  // The optimizer of local steps is a worker's own.
  if (!config.servers.enabled || config.local_steps.enabled) return "";
  if (config.gradient_clipping > 0) return "gradient_clipping";
  if (!config.optimizer.takes_norms()) return "";
  return fmt::format("optimizer.name \"{}\"", config.optimizer.name);
}

}  // namespace gradwire::recipe

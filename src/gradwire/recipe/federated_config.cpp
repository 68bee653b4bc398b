#include "gradwire/recipe/federated_config.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/federated/round.h"
#include "gradwire/federated/simulated_clients.h"
#include "gradwire/federated/update_quantizer.h"

namespace gradwire::recipe {
namespace {

constexpr std::int64_t kManyClients = 1'000'000;
constexpr double kLongest = 1e7;  ///< Seconds.
constexpr const char* kSynthetic = "synthetic_clients";

using Json = nlohmann::ordered_json;

PartitionConfig read_partition(JsonFields json) {
  PartitionConfig partition;
  partition.kind = json.choice_or("kind", partition.kind,
                                  {"iid", "shards", "dirichlet", "power_law", "classes"});
  partition.clients = json.integer_or("clients", partition.clients, 1, kManyClients);
  if (partition.kind == "shards")
    partition.shards = json.integer_or("shards", partition.shards, 1, kManyClients);
  if (partition.kind == "dirichlet")
    partition.alpha = json.number_or("alpha", partition.alpha, 1e-6, 1e6);
  if (partition.kind == "classes")
    partition.classes = json.integer_or("classes", partition.classes, 1, 1'000'000);
  partition.held_out = json.number_or("held_out", partition.held_out, 0, 0.9);
  json.refuse_others();
  return partition;
}

SyntheticConfig read_synthetic(JsonFields json, PartitionConfig& partition) {
  SyntheticConfig synthetic{.enabled = true};
  json.choice_or("name", kSynthetic, {kSynthetic});
  synthetic.alpha = json.number_or("alpha", synthetic.alpha, 0, 1e6);
  synthetic.beta = json.number_or("beta", synthetic.beta, 0, 1e6);
  partition.clients = json.integer_or("clients", 30, 1, kManyClients);
  partition.held_out = json.number_or("held_out", 0, 0, 0.9);
  synthetic.seed = static_cast<std::uint64_t>(json.integer_or("seed", 1, 0));
  json.refuse_others();
  return synthetic;
}

Duration seconds_or(JsonFields& json, std::string_view key, Duration usual) {
  return duration_of(json.number_or(key, seconds(usual), 1e-3, kLongest));
}

/// Defaults follow from the number of clients: a tenth of them, or what the file asks for.
federated::RoundPolicy read_round(JsonFields json, std::int64_t clients) {
  federated::RoundPolicy round;
  const std::int64_t tenth = std::max<std::int64_t>(1, clients / 10);
  const bool asks = json.has("ask"), uses = json.has("use");
  const std::int64_t first = json.integer_or(asks ? "ask" : "use", tenth, 1, kManyClients);
  round.ask = static_cast<int>(asks ? first : json.integer_or("ask", first, 1, kManyClients));
  round.use = static_cast<int>(uses ? json.integer_or("use", first, 1, kManyClients) : first);
  round.least =
      static_cast<int>(json.integer_or("least", std::max(1, round.use / 2), 1, kManyClients));
  round.window = seconds_or(json, "window_s", round.window);
  round.exchange = seconds_or(json, "exchange_s", round.exchange);
  round.gather = seconds_or(json, "gather_s", round.gather);
  round.selection =
      federated::selection_named(json.text_or("select", std::string(name_of(round.selection))));
  json.refuse_others();
  return round;
}

/// A server does not know how many clients there will be.
int largest_cohort(const FederatedConfig& config, FederatedUse use) {
  if (use != FederatedUse::simulate) return config.round.use;
  return static_cast<int>(std::min<std::int64_t>(config.round.use, config.partition.clients));
}

/// Neighbours and threshold follow from what is assumed of the cohort, unless they are given.
std::optional<federated::SecureRound> read_secure(JsonFields& root, const Json& json, int cohort) {
  if (!root.has("secure")) return std::nullopt;
  if (json.at("secure").is_boolean()) {
    if (!root.flag("secure")) return std::nullopt;
    return federated::SecureRound{
        .policy = value_or_throw(federated::find_policy({.clients = cohort, .dropping = 0.1}))};
  }
  JsonFields fields = root.object("secure");
  federated::CohortAssumptions assumed{.clients = cohort};
  assumed.active = fields.flag_or("active", false);
  federated::SecurePolicy policy{.active = assumed.active};
  if (fields.has("neighbours") || fields.has("threshold")) {
    policy.neighbours = fields.integer("neighbours", 1, 1'000'000);
    policy.threshold = fields.integer("threshold", 1, 1'000'000);
  } else {
    assumed.dropping = fields.number_or("dropping", 0.1, 0, 0.9);
    assumed.colluding = fields.number_or("colluding", assumed.colluding, 0, 0.9);
    policy = value_or_throw(federated::find_policy(assumed));
  }
  fields.refuse_others();
  return federated::SecureRound{.policy = policy};
}

LocalConfig read_local(JsonFields json, const Json& whole) {
  LocalConfig local;
  local.epochs = json.integer_or("epochs", local.epochs, 1, 1'000'000);
  local.batch_size = json.integer_or("batch_size", local.batch_size, 0, 1'000'000'000);
  local.adapts_proximal = whole.is_object() && whole.value("proximal", Json()) == "auto";
  if (local.adapts_proximal)
    json.text_or("proximal", "");
  else
    local.proximal = json.number_or("proximal", 0, 0, 1e6);
  local.partial =
      federated::partial_named(json.text_or("partial", std::string(name_of(local.partial))));
  OptimizerConfig usual;
  usual.momentum = 0;
  local.optimizer = read_optimizer_in(json, "optimizer", usual);
  json.refuse_others();
  return local;
}

OptimizerConfig read_server(JsonFields json) {
  OptimizerConfig usual;
  usual.learning_rate = 1;
  usual.momentum = 0;
  usual.epsilon = 1e-3;  // Adam's and Yogi's (Reddi et al., ICLR 2021, section 4).
  OptimizerConfig server = read_optimizer_in(json, "optimizer", usual);
  json.refuse_others();
  return server;
}

federated::QuantizerOptions read_update(JsonFields json) {
  federated::QuantizerOptions update;
  update.bits = static_cast<int>(json.integer_or("bits", update.bits, 2, 32));
  update.rotate = json.flag_or("rotate", update.rotate);
  update.keep = json.number_or("mask", update.keep, 1e-6, 1);
  update.clip = json.number_or("clip", update.clip, 0, 1e30);
  json.refuse_others();
  return update;
}

/// A median, or a list of the median and the spread; rates have units.
LogNormal read_log_normal(JsonFields& json, const Json& whole, const char* key, LogNormal usual,
                          bool is_rate) {
  if (!json.has(key)) {
    json.number_or(key, usual.median, 0, usual.median);  // It is among the known ones.
    return usual;
  }
  const Json value = whole.at(key);
  const Json median = value.is_array() && !value.empty() ? value[0] : value;
  json.json_text(key);
  LogNormal result{0, value.is_array() ? 0 : usual.sigma};
  if (value.is_array() && value.size() == 2 && value[1].is_number()) result.sigma = value[1];
  if (is_rate && median.is_string())
    result.median = value_or_throw(parse_rate(median.get<std::string>()));
  else if (median.is_number())
    result.median = median;
  const bool is_list = value.is_array() && (value.size() != 2 || !value[1].is_number());
  if (result.median <= 0 || is_list) {
    json.refuse(key, is_rate ? "a rate such as \"600KB/s\", or a list of it and the spread"
                             : "seconds, or a list of these and the spread");
  }
  return result;
}

federated::DeviceModel read_devices(JsonFields json, const Json& whole) {
  federated::DeviceModel devices;
  devices.compute = read_log_normal(json, whole, "compute_s", devices.compute, false);
  devices.up = read_log_normal(json, whole, "up", devices.up, true);
  devices.down = read_log_normal(json, whole, "down", devices.down, true);
  devices.eligible = json.number_or("eligible", devices.eligible, 0, 1);
  devices.drop = json.number_or("drop", devices.drop, 0, 1);
  devices.stragglers = json.number_or("stragglers", devices.stragglers, 0, 1);
  json.refuse_others();
  check(devices);
  return devices;
}

/// Reads and removes the keys of model files.
void read_model_file(Json& model, FederatedConfig& config) {
  if (!model.is_object() || !model.contains("file")) return;
  Json own = Json::object();
  for (const char* key : {"file", "buffers"})
    if (model.contains(key)) own[key] = model[key];
  JsonFields fields(own, "model");
  config.model_file = fields.text("file");
  config.model_buffers = {"*running_mean", "*running_var"};
  if (fields.has("buffers")) config.model_buffers = fields.texts("buffers");
  model.erase("file");
  model.erase("buffers");
  config.names_model = !model.empty();
  if (config.names_model && own.contains("buffers"))
    refuse("model.buffers is for a model.file alone: the model knows its buffers; leave it out");
}

struct OtherKey {
  const char* path;
  const char* reason;
};

constexpr OtherKey kOfTraining[]{
    {"/data/uneven", "is for gradwire train: a client takes its last batch as it is"},
    {"/data/prefetch", "is for gradwire train: clients make no batches ahead"},
    {"/model/tie_word_embeddings", "is for gradwire train: clients have the layers one by one"}};
constexpr OtherKey kOfServers[]{
    {"/round/gather_s", "is for gradwire federate serve: simulated clients check in at once"}};
constexpr OtherKey kOfSimulations[]{
    {"/devices", "is for gradwire federate simulate: clients are real"},
    {"/server_rate", "is for gradwire federate simulate: the network is real"},
    {"/evaluate_every", "is for gradwire federate simulate: clients evaluate in each round"},
    {"/data/path", "is for gradwire federate simulate: clients have the data; see their --data"}};

void refuse_keys(const Json& json, std::span<const OtherKey> keys) {
  for (const auto& [path, reason] : keys) {
    if (!json.contains(Json::json_pointer(path))) continue;
    std::string name(path + 1);
    std::ranges::replace(name, '/', '.');
    refuse("{} {}; leave it out", name, reason);
  }
}

/// Keys that would do nothing.
void refuse_keys_of_others(const Json& json, FederatedUse use) {
  refuse_keys(json, kOfTraining);
  if (use == FederatedUse::simulate) refuse_keys(json, kOfServers);
  if (use == FederatedUse::serve) refuse_keys(json, kOfSimulations);
}

std::string text_for_clients(const Json& json, bool names_model) {
  Json told = Json::object();
  for (const char* key : {"model", "data", "partition", "seed"})
    if (json.contains(key)) told[key] = json[key];
  if (!names_model) told["model"] = nullptr;
  if (told.contains("data") && told["data"].is_object()) told["data"].erase("path");
  return told.dump();
}

/// The keys that `gradwire train` has too, read as there.
TrainConfig shared_keys(const Json& json, bool is_synthetic) {
  Json shared = Json::object();
  for (const char* key : {"model", "data", "seed"})
    if (json.contains(key) && !(is_synthetic && key != std::string_view("seed")))
      shared[key] = json[key];
  return parse_train_config(shared);
}

const Json& object_at(const Json& json, const char* key) {
  static const Json none = Json::object();
  return json.contains(key) ? json.at(key) : none;
}

}  // namespace

FederatedConfig parse_federated_config(const Json& whole, FederatedUse use) {
  FederatedConfig config;
  config.text = whole.dump();
  Json json = whole;
  refuse_keys_of_others(json, use);
  if (json.is_object() && json.contains("model")) read_model_file(json["model"], config);
  JsonFields root(json, "", "the configuration");
  const Json& data = object_at(json, "data");
  const bool is_synthetic = data.is_object() && data.value("name", Json()) == kSynthetic;
  const TrainConfig shared = shared_keys(json, is_synthetic);
  for (const char* key : {"model", "data"}) root.object_or_empty(key);
  config.seed = static_cast<std::uint64_t>(root.integer_or("seed", 1, 0));
  config.model = shared.model;
  config.model_text = shared.model_text;
  config.for_clients = text_for_clients(json, config.names_model);
  config.data = shared.data;
  if (is_synthetic) {
    config.synthetic = read_synthetic(root.object_or_empty("data"), config.partition);
    for (const char* key : {"model", "partition"})
      if (whole.contains(key))
        refuse("{} is that of data.name \"{}\"; leave it out", key, kSynthetic);
  } else {
    config.partition = read_partition(root.object_or_empty("partition"));
  }
  config.rounds = root.integer_or("rounds", config.rounds, 1, 1'000'000);
  config.round = read_round(root.object_or_empty("round"), config.partition.clients);
  config.round.secure = read_secure(root, json, largest_cohort(config, use));
  check(config.round);
  if (config.round.secure)
    value_or_throw(check_among(largest_cohort(config, use), config.round.secure->policy));
  config.local = read_local(root.object_or_empty("local"), object_at(json, "local"));
  config.server = read_server(root.object_or_empty("server"));
  config.update = read_update(root.object_or_empty("update"));
  if (config.round.secure)
    value_or_throw(federated::check_contributors(config.round.secure->policy, config.update.keep));
  config.sends_bf16 = root.choice_or("download", "float32", {"float32", "bf16"}) == "bf16";
  config.devices = read_devices(root.object_or_empty("devices"), object_at(json, "devices"));
  const std::string rate = root.text_or("server_rate", "");
  if (!rate.empty()) config.server_rate = value_or_throw(parse_rate(rate));
  config.evaluate_every = root.integer_or("evaluate_every", 1, 1, 1'000'000);
  root.refuse_others();
  return config;
}

FederatedConfig load_federated_config(const std::filesystem::path& path,
                                      const std::vector<std::string>& settings, FederatedUse use) {
  const Json json = read_configuration(path, settings);
  try {
    return parse_federated_config(json, use);
  } catch (const Exception& error) {
    throw Exception(error.kind(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace gradwire::recipe

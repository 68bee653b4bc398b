#include "gradwire/train/train_config.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/train/json_object.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

ModelConfig read_model(JsonObject json) {
  ModelConfig model;
  model.name = json.choice("name", model.name, {"convnet", "mlp"});
  if (model.name == "convnet") model.channels = json.integer("channels", model.channels, 1, 4096);
  model.hidden = json.integer("hidden", model.hidden, 1, 1 << 20);
  model.dropout = json.number("dropout", model.dropout, 0, 0.99);
  json.refuse_unknown();
  return model;
}

DataConfig read_data(JsonObject json) {
  DataConfig data;
  data.path = json.text("path", data.path);
  data.limit = json.integer("limit", data.limit, 0, kMany);
  data.uneven = json.choice("uneven", "drop", {"drop", "pad"}) == "pad" ? UnevenBatch::pad
                                                                        : UnevenBatch::drop;
  data.prefetch = json.integer("prefetch", data.prefetch, 1, 1024);
  json.refuse_unknown();
  return data;
}

OptimizerConfig read_optimizer(JsonObject json) {
  OptimizerConfig optimizer;
  optimizer.name = json.choice("name", optimizer.name, {"sgd", "adam"});
  const bool adam = optimizer.name == "adam";
  optimizer.learning_rate = json.number("learning_rate", adam ? 1e-3 : 0.05, 0, 1e6);
  if (adam) {
    optimizer.beta1 = json.number("beta1", optimizer.beta1, 0, 1);
    optimizer.beta2 = json.number("beta2", optimizer.beta2, 0, 1);
    optimizer.epsilon = json.number("epsilon", optimizer.epsilon, 0, 1);
  } else {
    optimizer.momentum = json.number("momentum", optimizer.momentum, 0, 1);
    optimizer.nesterov = json.flag("nesterov", optimizer.nesterov);
  }
  optimizer.weight_decay = json.number("weight_decay", optimizer.weight_decay, 0, 1e6);
  json.refuse_unknown();
  return optimizer;
}

ScheduleConfig read_schedule(JsonObject json) {
  ScheduleConfig schedule;
  schedule.warmup_epochs = json.number("warmup_epochs", schedule.warmup_epochs, 0, 1e6);
  schedule.decay = json.choice("decay", schedule.decay, {"constant", "cosine"});
  if (schedule.decay == "cosine") {
    schedule.final_fraction = json.number("final_fraction", schedule.final_fraction, 0, 1);
  }
  json.refuse_unknown();
  return schedule;
}

ParallelConfig read_parallel(JsonObject json) {
  ParallelConfig parallel;
  parallel.bucket_cap_mb = json.number("bucket_cap_mb", parallel.bucket_cap_mb, 1e-6, 1e6);
  parallel.broadcast_buffers = json.flag("broadcast_buffers", parallel.broadcast_buffers);
  parallel.find_unused_parameters =
      json.flag("find_unused_parameters", parallel.find_unused_parameters);
  json.refuse_unknown();
  return parallel;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("cannot read the configuration {}", path.string()));
  }
  try {
    return nlohmann::json::parse(file, nullptr, true, /*ignore_comments=*/true);
  } catch (const nlohmann::json::parse_error& error) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} is not JSON: {}", path.string(), error.what()));
  }
}

}  // namespace

TrainConfig parse_train_config(const nlohmann::json& json) {
  JsonObject root(json, "");
  TrainConfig config;
  config.model = read_model(root.object("model"));
  config.data = read_data(root.object("data"));
  config.optimizer = read_optimizer(root.object("optimizer"));
  config.schedule = read_schedule(root.object("schedule"));
  config.parallel = read_parallel(root.object("parallel"));
  config.epochs = root.integer("epochs", config.epochs, 1, 1'000'000);
  config.batch_size = root.integer("batch_size", config.batch_size, 1, kMany);
  config.accumulation_steps = root.integer("accumulation_steps", 1, 1, kMany);
  config.seed = static_cast<std::uint64_t>(root.integer("seed", 1, 0));
  config.checkpoint = root.text("checkpoint", config.checkpoint);
  root.refuse_unknown();
  return config;
}

TrainConfig load_train_config(const std::filesystem::path& path,
                              const std::vector<std::string>& settings) {
  auto json = read_json(path);
  for (const auto& setting : settings) apply_setting(json, setting);
  try {
    return parse_train_config(json);
  } catch (const Exception& error) {
    throw Exception(error.kind(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

std::int64_t batch_size_per_rank(const TrainConfig& config, int ranks) {
  if (config.batch_size % (ranks * config.accumulation_steps) != 0) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("batch_size {} does not divide by {} ranks times {} "
                                "accumulation_steps; make it a multiple of {}",
                                config.batch_size, ranks, config.accumulation_steps,
                                ranks * config.accumulation_steps));
  }
  return config.batch_size / ranks;
}

}  // namespace gradwire

#include "gradwire/train/train_config.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/train/json_object.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

void read_transformer(JsonObject& json, ModelConfig& model) {
  model.width = json.integer("width", model.width, 1, 1 << 16);
  model.layers = json.integer("layers", model.layers, 1, 1000);
  model.heads = json.integer("heads", model.heads, 1, 1 << 16);
  json.refuse_unknown();
  if (model.width % model.heads == 0) return;
  throw Exception(
      ErrorKind::invalid_argument,
      fmt::format("model.width {} does not divide by model.heads {}", model.width, model.heads));
}

/// `data` says what the model reads, and so which one is usual.
ModelConfig read_model(JsonObject json, const DataConfig& data) {
  ModelConfig model;
  const bool text = data.name == "text";
  model.name = text ? json.choice("name", "transformer", {"transformer"})
                    : json.choice("name", model.name, {"convnet", "mlp"});
  if (text) {
    read_transformer(json, model);
    model.context = data.context;
    return model;
  }
  if (model.name == "convnet") model.channels = json.integer("channels", model.channels, 1, 4096);
  model.hidden = json.integer("hidden", model.hidden, 1, 1 << 20);
  model.dropout = json.number("dropout", model.dropout, 0, 0.99);
  json.refuse_unknown();
  return model;
}

DataConfig read_data(JsonObject json) {
  DataConfig data;
  data.name = json.choice("name", data.name, {"fashion_mnist", "text"});
  if (data.name == "text") data.context = json.integer("context", data.context, 1, 1 << 16);
  data.path = json.text("path", data.path);
  data.limit = json.integer("limit", data.limit, 0, kMany);
  data.uneven = json.choice("uneven", "drop", {"drop", "pad"}) == "pad" ? UnevenBatch::pad
                                                                        : UnevenBatch::drop;
  data.prefetch = json.integer("prefetch", data.prefetch, 1, 1024);
  json.refuse_unknown();
  return data;
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

/// Which of `names` the text at `key` is.
template <class Names>
std::size_t read_name(JsonObject& json, std::string_view key, std::string_view otherwise,
                      const Names& names) {
  const auto chosen =
      json.choice(key, std::string(otherwise), {std::begin(names), std::end(names)});
  return static_cast<std::size_t>(std::ranges::find(names, chosen) - std::begin(names));
}

void read_codec(JsonObject& json, ParallelConfig& parallel) {
  parallel.codec = json.text("codec", parallel.codec);
  const std::string_view spec = parallel.codec;
  const auto known = parse_codec(spec.starts_with("auto:") ? spec.substr(5) : spec);
  if (!known) refuse("parallel.codec: " + known.error().message);
  parallel.codec_min_elements =
      json.integer("codec_min_elements", parallel.codec_min_elements, 0, kMany);
  parallel.codec_warmup_steps = json.integer("codec_warmup_steps", 0, 0, kMany);
}

/// `usual`: what overlaps unless the configuration says.
ParallelConfig read_parallel(JsonObject json, Overlap usual) {
  ParallelConfig parallel;
  parallel.bucket_cap_mb = json.number("bucket_cap_mb", parallel.bucket_cap_mb, 1e-6, 1e6);
  parallel.broadcast_buffers = json.flag("broadcast_buffers", parallel.broadcast_buffers);
  parallel.find_unused_parameters =
      json.flag("find_unused_parameters", parallel.find_unused_parameters);
  parallel.overlap =
      static_cast<Overlap>(read_name(json, "overlap", name_of(usual), kOverlapNames));
  read_codec(json, parallel);
  parallel.check_finite = json.flag("check_finite", parallel.check_finite);
  json.refuse_unknown();
  return parallel;
}

void check_together(const TrainConfig& config) {
  if (config.precision == Precision::fp16) {
    if (config.parallel.overlap == Overlap::full) {
      refuse(
          "precision \"fp16\" looks at all gradients before it steps any parameter, which "
          "parallel.overlap \"full\" does not wait for; use \"backward\"");
    }
    if (config.parallel.check_finite) {
      refuse(
          "parallel.check_finite refuses the infinite gradients by which precision \"fp16\" "
          "finds its loss scale; leave one of them out");
    }
  }
  if (config.checkpoint_every > 0 && config.checkpoint.empty()) {
    refuse("checkpoint_every needs a checkpoint to write; checkpoint is \"\"");
  }
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
  config.data = read_data(root.object("data"));
  config.model = read_model(root.object("model"), config.data);
  config.optimizer = read_optimizer(root.object("optimizer"));
  config.schedule = read_schedule(root.object("schedule"));
  config.precision = static_cast<Precision>(read_name(root, "precision", "fp32", kPrecisionNames));
  const bool half = config.precision == Precision::fp16;
  config.parallel =
      read_parallel(root.object("parallel"), half ? Overlap::backward : Overlap::full);
  config.local_steps = read_local_steps(root.object("local_steps"));
  config.epochs = root.integer("epochs", config.epochs, 1, 1'000'000);
  config.batch_size = root.integer("batch_size", config.batch_size, 1, kMany);
  config.accumulation_steps = root.integer("accumulation_steps", 1, 1, kMany);
  config.seed = static_cast<std::uint64_t>(root.integer("seed", 1, 0));
  config.checkpoint = root.text("checkpoint", config.checkpoint);
  config.checkpoint_every = root.integer("checkpoint_every", 0, 0, kMany);
  config.resume = root.text("resume", config.resume);
  config.trace = root.text("trace", config.trace);
  root.refuse_unknown();
  check_together(config);
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

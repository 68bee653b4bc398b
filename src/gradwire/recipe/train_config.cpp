#include "gradwire/recipe/train_config.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/base/read_file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/recipe/json_object.h"
#include "gradwire/recipe/loss_scaler_config.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

void read_transformer(JsonObject& json, ModelConfig& model) {
  model.width = json.integer("width", model.width, 1, 1 << 16);
  model.layers = json.integer("layers", model.layers, 1, 1000);
  model.heads = json.integer("heads", model.heads, 1, 1 << 16);
  if (model.name == "gpt") {
    model.vocabulary = json.integer("vocabulary", model.vocabulary, 256, 1 << 24);
    model.dropout = json.number("dropout", model.dropout, 0, 0.99);
  }
  json.refuse_unknown();
  if (model.width % model.heads == 0) return;
  throw Exception(
      ErrorKind::invalid_argument,
      fmt::format("model.width {} is not divisible by model.heads {}", model.width, model.heads));
}

void read_resnet(JsonObject& json, ModelConfig& model) {
  model.channels = json.integer("channels", model.channels, 1, 4096);
  model.blocks = json.integer("blocks", model.blocks, 1, 1000);
  model.groups = json.integer("groups", model.groups, 1, 4096);
  json.refuse_unknown();
  if (model.channels % model.groups == 0) return;
  refuse(fmt::format("model.channels {} is not divisible by model.groups {}", model.channels,
                     model.groups));
}

/// Number of blocks that can be checkpointed.
std::int64_t blocks_of(const ModelConfig& model) {
  if (model.name == "resnet") return 4 * model.blocks;
  return model.name == "transformer" || model.name == "gpt" ? model.layers : 0;
}

void read_activation_checkpointing(JsonObject json, ModelConfig& model) {
  model.checkpoints = json.integer("number_checkpoints", 0, 0, kMany);
  if (json.flag("partition_activations", false)) {
    refuse(
        "activation_checkpointing.partition_activations requires ranks that compute the same "
        "activations (tensor parallelism); data-parallel ranks have different batches. In your own "
        "program use ActivationCheckpointOptions::partition_group");
  }
  json.refuse_unknown();
  if (model.checkpoints <= blocks_of(model)) return;
  refuse(
      fmt::format("activation_checkpointing.number_checkpoints is {}; model \"{}\" has {} blocks",
                  model.checkpoints, model.name, blocks_of(model)));
}

/// `data` selects the kind of model, and so its default name.
ModelConfig read_model(JsonObject json, const DataConfig& data) {
  ModelConfig model;
  const bool text = data.name == "text";
  model.name = text ? json.choice("name", "transformer", {"transformer", "gpt"})
                    : json.choice("name", model.name, {"convnet", "mlp", "resnet"});
  if (text) {
    read_transformer(json, model);
    model.context = data.context;
    return model;
  }
  if (model.name == "resnet") {
    read_resnet(json, model);
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

/// Returns the index in `names` of the string at `key`.
template <class Names>
std::size_t read_name(JsonObject& json, std::string_view key, std::string_view otherwise,
                      const Names& names) {
  const auto chosen =
      json.choice(key, std::string(otherwise), {std::begin(names), std::end(names)});
  return static_cast<std::size_t>(std::ranges::find(names, chosen) - std::begin(names));
}

/// Returns the alias in `names` that the configuration uses; the first, gradwire's own, if none.
std::string_view name_used(const nlohmann::json& json,
                           std::initializer_list<std::string_view> names) {
  std::string_view used;
  for (const auto name : names) {
    if (!json.contains(name)) continue;
    if (!used.empty()) refuse(fmt::format("{} and {} are the same; leave one out", used, name));
    used = name;
  }
  return used.empty() ? *names.begin() : used;
}

/// "codec" in `root` (JSON: `whole`) is short for the one in `json`.
void read_codec(JsonObject& root, const nlohmann::json& whole, JsonObject& json,
                ParallelConfig& parallel) {
  const bool is_short = whole.contains("codec");
  if (is_short && whole.contains("parallel") && whole["parallel"].contains("codec")) {
    refuse("codec and parallel.codec are the same; leave one out");
  }
  parallel.codec = (is_short ? root : json).text("codec", parallel.codec);
  const auto known = check_codec(parallel.codec);
  if (!known) refuse((is_short ? "codec: " : "parallel.codec: ") + known.error().message);
  parallel.codec_min_elements =
      json.integer("codec_min_elements", parallel.codec_min_elements, 0, kMany);
  parallel.codec_warmup_steps = json.integer("codec_warmup_steps", 0, 0, kMany);
}

/// `usual`: default overlap.
ParallelConfig read_parallel(JsonObject& root, const nlohmann::json& whole, Overlap usual) {
  auto json = root.object("parallel");
  ParallelConfig parallel;
  parallel.bucket_cap_mb = json.number("bucket_cap_mb", parallel.bucket_cap_mb, 1e-6, 1e6);
  parallel.broadcast_buffers = json.flag("broadcast_buffers", parallel.broadcast_buffers);
  parallel.find_unused_parameters =
      json.flag("find_unused_parameters", parallel.find_unused_parameters);
  parallel.overlap =
      static_cast<Overlap>(read_name(json, "overlap", name_of(usual), kOverlapNames));
  read_codec(root, whole, json, parallel);
  parallel.check_finite = json.flag("check_finite", parallel.check_finite);
  json.refuse_unknown();
  return parallel;
}

/// `precision` is a string (of the computation), or an object that also sets the parameters'
/// precision.
void read_precision(JsonObject& root, const nlohmann::json& json, TrainConfig& config) {
  const auto read = [](JsonObject& from, std::string_view key, std::string_view usual) {
    return static_cast<Precision>(read_name(from, key, usual, kPrecisionNames));
  };
  if (!json.contains("precision") || !json["precision"].is_object()) {
    config.precision = read(root, "precision", "fp32");
    return;
  }
  auto precision = root.object("precision");
  config.parameters = read(precision, "parameters", "fp32");
  config.precision = read(precision, "compute", name_of(config.parameters));
  precision.refuse_unknown();
  if (config.parameters == Precision::fp32 || config.parameters == config.precision) return;
  refuse(fmt::format("precision.parameters \"{}\" needs precision.compute \"{}\", not \"{}\"",
                     name_of(config.parameters), name_of(config.parameters),
                     name_of(config.precision)));
}

/// Each rank receives only its shard of the mean, with values in float32.
void check_zero_codec(const TrainConfig& config) {
  const std::string_view codec = config.parallel.codec;
  if (codec.starts_with("auto") || codec.starts_with("power_sgd")) {
    refuse(
        fmt::format("parallel.codec {} is incompatible with zero.stage {}; use a codec of single "
                    "values, such as int8",
                    codec, config.zero.stage));
  }
  if (codec != "none" && config.parameters != Precision::fp32) {
    refuse("parallel.codec requires gradients in fp32; leave it or precision.parameters out");
  }
}

/// Rejects settings that need whole gradients or parameters.
void check_zero(const TrainConfig& config) {
  const auto with = [&](const char* key) {
    refuse(fmt::format("{} is incompatible with zero.stage {}; leave one of them out", key,
                       config.zero.stage));
  };
  if (config.zero.stage == 0) {
    if (!config.zero.offload_path.empty()) {
      refuse("zero.offload_optimizer needs zero.stage 1 to 3");
    }
    if (config.parameters == Precision::fp32) return;
    refuse(
        "precision.parameters requires zero.stage 1 to 3, where each rank keeps its shard in fp32");
  }
  check_zero_codec(config);
  if (config.local_steps.enabled) with("local_steps");
  if (config.parallel.check_finite) with("parallel.check_finite");
}

/// Returns true if no parameter may be stepped before all gradients are known.
bool looks_at_all_gradients(const TrainConfig& config) {
  return config.precision == Precision::fp16 || config.gradient_clipping > 0;
}

/// With local steps, ranks step independently and never see the mean gradients.
void check_local_steps_with(const TrainConfig& config) {
  if (!config.local_steps.enabled) return;
  if (config.parallel.codec != "none") {
    refuse(fmt::format(
        "parallel.codec \"{0}\" compresses gradients, which are not sent with local_steps; use "
        "local_steps.codec \"{0}\" for the differences, or leave it out",
        config.parallel.codec));
  }
  if (config.gradient_clipping > 0) {
    refuse("gradient_clipping is incompatible with local_steps; leave one of them out");
  }
  if (config.parallel.check_finite) {
    refuse(
        "parallel.check_finite checks the mean gradient, which does not exist with local_steps; "
        "leave one of them out");
  }
  if (config.precision == Precision::fp16) {
    refuse(
        "precision \"fp16\" is incompatible with local_steps: each rank would have its own loss "
        "scale and skip steps independently, and a checkpoint would only keep rank 0's; use "
        "\"bf16\"");
  }
}

void check_together(const TrainConfig& config) {
  check_zero(config);
  check_local_steps_with(config);
  if (config.zero.stage == 0 && config.gradient_clipping > 0 &&
      config.parallel.overlap == Overlap::full) {
    refuse(
        "gradient_clipping needs all gradients before any parameter is stepped, but "
        "parallel.overlap \"full\" does not wait for them; use \"backward\"");
  }
  if (config.model.checkpoints > 0 && config.parallel.find_unused_parameters) {
    refuse(
        "parallel.find_unused_parameters searches the graph for parameters, but those of blocks "
        "with activation_checkpointing are not in it; leave one of them out");
  }
  if (config.precision == Precision::fp16) {
    if (config.zero.stage == 0 && config.parallel.overlap == Overlap::full) {
      refuse(
          "precision \"fp16\" needs all gradients before any parameter is stepped, but "
          "parallel.overlap \"full\" does not wait for them; use \"backward\"");
    }
    if (config.parallel.check_finite) {
      refuse(
          "parallel.check_finite rejects the infinite gradients by which precision \"fp16\" finds "
          "its loss scale; leave one of them out");
    }
  }
  if (config.checkpoint_every > 0 && config.checkpoint.empty()) {
    refuse("checkpoint_every needs a checkpoint to write; checkpoint is \"\"");
  }
}

/// A path from the command line may not be UTF-8, which JSON requires.
std::string text_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json read_json(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) refuse(fmt::format("the configuration: {}", text.error().message));
  try {
    return nlohmann::json::parse(*text, nullptr, true, /*ignore_comments=*/true);
  } catch (const nlohmann::json::parse_error& error) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} is not JSON: {}", path.string(), error.what()));
  }
}

nlohmann::json read_settled(const std::filesystem::path& path,
                            const std::vector<std::string>& settings) {
  auto json = read_json(path);
  for (const auto& setting : settings) apply_setting(json, setting);
  return json;
}

}  // namespace

TrainConfig parse_train_config(const nlohmann::json& json) {
  JsonObject root(json, "");
  TrainConfig config;
  config.data = read_data(root.object("data"));
  config.model = read_model(root.object("model"), config.data);
  read_activation_checkpointing(root.object("activation_checkpointing"), config.model);
  config.optimizer = read_optimizer(root.object("optimizer"));
  config.schedule = read_schedule(root.object("schedule"));
  read_precision(root, json, config);
  config.loss_scaling = read_loss_scaling(root.object("fp16"), config.precision);
  config.zero = read_zero(root.object(name_used(json, {"zero", "zero_optimization"})));
  config.gradient_clipping = root.number("gradient_clipping", 0, 0, 1e30);
  const bool wait = config.zero.stage == 0 && looks_at_all_gradients(config);
  config.parallel = read_parallel(root, json, wait ? Overlap::backward : Overlap::full);
  config.local_steps = read_local_steps(root.object("local_steps"));
  config.epochs = root.integer("epochs", config.epochs, 1, 1'000'000);
  config.batch_size = root.integer("batch_size", config.batch_size, 1, kMany);
  config.accumulation_steps = root.integer(
      name_used(json,
                {"accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation"}),
      1, 1, kMany);
  config.seed = static_cast<std::uint64_t>(root.integer("seed", 1, 0));
  config.checkpoint = root.text("checkpoint", config.checkpoint);
  config.checkpoint_every = root.integer("checkpoint_every", 0, 0, kMany);
  config.checkpoint_folder = root.text("checkpoint_folder", config.checkpoint_folder);
  config.checkpoint_keep = root.integer("checkpoint_keep", config.checkpoint_keep, 0, kMany);
  config.resume = root.text("resume", config.resume);
  config.trace = root.text("trace", config.trace);
  root.refuse_unknown();
  config.model_text = text_of(json.value("model", nlohmann::json::object()));
  check_together(config);
  return config;
}

TrainConfig load_train_config(const std::filesystem::path& path,
                              const std::vector<std::string>& settings) {
  const auto json = read_settled(path, settings);
  try {
    return parse_train_config(json);
  } catch (const Exception& error) {
    throw Exception(error.kind(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

std::string configuration_text(const std::filesystem::path& path,
                               const std::vector<std::string>& settings) {
  return text_of(read_settled(path, settings));
}

std::int64_t batch_size_per_rank(const TrainConfig& config, int ranks) {
  if (config.batch_size % (ranks * config.accumulation_steps) != 0) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("batch_size {} is not divisible by {} ranks times {} "
                                "accumulation_steps; make it a multiple of {}",
                                config.batch_size, ranks, config.accumulation_steps,
                                ranks * config.accumulation_steps));
  }
  return config.batch_size / ranks;
}

}  // namespace gradwire

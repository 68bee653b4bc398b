#include "gradwire/recipe/train_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire::recipe {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr std::int64_t kMaxSamples = 1'000'000'000;

double usual_rate(const std::string& name) {
  if (name == "adam") return 1e-3;
  if (name == "lars") return 1;  // The trust coefficient makes the step small.
  if (name == "lamb") return 0.01;
  return 0.05;
}

void read_moments(JsonObject& json, OptimizerConfig& optimizer) {
  if (optimizer.name == "lamb") optimizer.epsilon = 1e-6;
  optimizer.beta1 = json.number("beta1", optimizer.beta1, 0, 1);
  optimizer.beta2 = json.number("beta2", optimizer.beta2, 0, 1);
  optimizer.epsilon = json.number("epsilon", optimizer.epsilon, 0, 1);
}

void read_momentum(JsonObject& json, OptimizerConfig& optimizer) {
  optimizer.momentum = json.number("momentum", optimizer.momentum, 0, 1);
  if (optimizer.name == "sgd") optimizer.nesterov = json.flag("nesterov", optimizer.nesterov);
  if (optimizer.name != "lars") return;
  optimizer.trust_coefficient =
      json.number("trust_coefficient", optimizer.trust_coefficient, 1e-12, 1e6);
}

void read_scaling(JsonObject& json, OptimizerConfig& optimizer) {
  optimizer.scaling =
      json.choice("learning_rate_scaling", optimizer.scaling, {"none", "linear", "sqrt"});
  if (optimizer.scaling == "none") return;
  optimizer.base_batch_size = json.integer("base_batch_size", 0, 0, kMaxSamples);
  if (optimizer.base_batch_size > 0) return;
  refuse(
      "optimizer.learning_rate_scaling needs optimizer.base_batch_size: the batch size "
      "that optimizer.learning_rate was tuned for");
}

}  // namespace

OptimizerConfig read_optimizer(JsonObject json) {
  OptimizerConfig optimizer;
  optimizer.name = json.choice("name", optimizer.name, {"sgd", "adam", "lars", "lamb"});
  optimizer.learning_rate = json.number("learning_rate", usual_rate(optimizer.name), 0, 1e6);
  if (optimizer.name == "adam" || optimizer.name == "lamb") {
    read_moments(json, optimizer);
  } else {
    read_momentum(json, optimizer);
  }
  optimizer.weight_decay = json.number("weight_decay", optimizer.weight_decay, 0, 1e6);
  read_scaling(json, optimizer);
  json.refuse_unknown();
  return optimizer;
}

step::LocalStepsConfig read_local_steps(JsonObject json) {
  step::LocalStepsConfig config;
  config.steps = json.integer("steps", 0, 0, kMany);  // 0: the key is absent.
  config.outer_learning_rate = json.number("outer_learning_rate", 1, 0, 1e6);
  config.outer_momentum = json.number("outer_momentum", 0, 0, 1);
  config.fragments = json.integer("fragments", 1, 1, kMany);
  config.overlap_steps = json.integer("overlap_steps", 0, 0, kMany);
  config.mixing = json.number("mixing", config.overlap_steps > 0 ? 0.5 : 0, 0, 1);
  config.codec = json.text("codec", config.codec);
  json.refuse_unknown();
  config.enabled = config.steps > 0;
  if (!config.enabled) {
    config.steps = 1;
    if (config != step::LocalStepsConfig{}) {
      refuse("local_steps.steps is missing: the number of steps between two averagings");
    }
  }
  step::check_local_steps(config);
  return config;
}

namespace {

void read_offload(JsonObject json, ZeroConfig& zero) {
  zero.offload_device = json.choice("device", "none", {"none", "nvme"});
  zero.offload_path = json.text("nvme_path", "");
  json.refuse_unknown();
  if ((zero.offload_device == "nvme") == zero.offload_path.empty()) {
    refuse(
        "zero.offload_optimizer needs both \"device\": \"nvme\" and \"nvme_path\", a "
        "folder on a disk, or neither");
  }
}

}  // namespace

ZeroConfig read_zero(JsonObject json) {
  constexpr std::int64_t kManyElements = 1'000'000'000'000;
  ZeroConfig zero;
  zero.stage = json.integer("stage", zero.stage, 0, 3);
  zero.reduce_bucket_size =
      json.integer("reduce_bucket_size", zero.reduce_bucket_size, 0, kManyElements);
  zero.overlap_comm = json.flag("overlap_comm", zero.overlap_comm);
  zero.stage3_prefetch_bucket_size = json.integer(
      "stage3_prefetch_bucket_size", zero.stage3_prefetch_bucket_size, 0, kManyElements);
  zero.stage3_param_persistence_threshold =
      json.integer("stage3_param_persistence_threshold", zero.stage3_param_persistence_threshold, 0,
                   kManyElements);
  read_offload(json.object("offload_optimizer"), zero);
  json.refuse_unknown();
  return zero;
}

namespace {

constexpr double kMinScale = 1e-9;  ///< Minimum of any scale.
constexpr double kMaxScale = 1e12;  ///< Maximum of any scale, above 2^40.

/// "enabled" must agree with "precision", which also selects the 16-bit type.
void check_enabled(bool enabled, Precision computing) {
  if (enabled == (computing == Precision::fp16)) return;
  refuse(enabled ? fmt::format("fp16.enabled is true but precision is \"{}\"; set \"precision\": "
                               "\"fp16\" or, with ZeRO, {{\"parameters\": \"fp16\"}}",
                               name_of(computing))
                 : "fp16.enabled is false but precision is \"fp16\"; leave one of them out");
}

void read_dynamic(JsonObject& json, LossScalerOptions& options) {
  const auto usual = static_cast<std::int64_t>(std::log2(options.scale));
  options.scale = std::exp2(json.integer("initial_scale_power", usual, 0, 40));
  options.growth_interval =
      json.integer("loss_scale_window", options.growth_interval, 1, 1'000'000'000);
  options.hysteresis = json.integer("hysteresis", options.hysteresis, 1, 1'000'000);
  options.consecutive_hysteresis =
      json.flag("consecutive_hysteresis", options.consecutive_hysteresis);
  options.min_scale = json.number("min_loss_scale", options.min_scale, kMinScale, kMaxScale);
  if (options.min_scale <= options.scale) return;
  refuse(
      "fp16.min_loss_scale is {}, above the initial scale {}: 2 to the power of "
      "fp16.initial_scale_power",
      options.min_scale, options.scale);
}

void refuse_dynamic(const JsonObject& json, double scale) {
  for (const auto* key : {"initial_scale_power", "loss_scale_window", "hysteresis",
                          "consecutive_hysteresis", "min_loss_scale"}) {
    if (!json.has(key)) continue;
    refuse(
        "fp16.{} configures a dynamic scale, but fp16.loss_scale {} is a fixed one; "
        "leave one of them out",
        key, scale);
  }
}

}  // namespace

LossScalerOptions read_loss_scaling(JsonObject json, Precision computing) {
  if (computing != Precision::fp16 && !json.empty() && !json.has("enabled")) {
    refuse(
        "fp16 configures loss scaling of precision \"fp16\", but precision is \"{}\"; "
        "leave one of them out",
        name_of(computing));
  }
  check_enabled(json.flag("enabled", computing == Precision::fp16), computing);
  LossScalerOptions options;
  const double fixed = json.number("loss_scale", 0, 0, kMaxScale);
  if (fixed > 0) refuse_dynamic(json, fixed);
  read_dynamic(json, options);
  json.refuse_unknown();
  if (fixed == 0) return options;
  if (fixed < kMinScale) {
    refuse("fp16.loss_scale is {}; it must be 0 (dynamic) or at least {}", fixed, kMinScale);
  }
  options.fixed = true;
  options.scale = fixed;
  return options;
}

namespace {

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
  refuse("model.width {} is not divisible by model.heads {}", model.width, model.heads);
}

void read_resnet(JsonObject& json, ModelConfig& model) {
  model.channels = json.integer("channels", model.channels, 1, 4096);
  model.blocks = json.integer("blocks", model.blocks, 1, 1000);
  model.groups = json.integer("groups", model.groups, 1, 4096);
  json.refuse_unknown();
  if (model.channels % model.groups == 0) return;
  refuse("model.channels {} is not divisible by model.groups {}", model.channels, model.groups);
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
  refuse("activation_checkpointing.number_checkpoints is {}; model \"{}\" has {} blocks",
         model.checkpoints, model.name, blocks_of(model));
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
    if (!used.empty()) refuse("{} and {} are the same; leave one out", used, name);
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
  const auto known = codec::check_codec(parallel.codec);
  if (!known) refuse((is_short ? "codec: " : "parallel.codec: ") + known.error().message);
  parallel.codec_min_elements =
      json.integer("codec_min_elements", parallel.codec_min_elements, 0, kMany);
  parallel.codec_warmup_steps = json.integer("codec_warmup_steps", 0, 0, kMany);
}

/// `usual`: default overlap.
ParallelConfig read_parallel(JsonObject& root, const nlohmann::json& whole, step::Overlap usual) {
  auto json = root.object("parallel");
  ParallelConfig parallel;
  parallel.bucket_cap_mb = json.number("bucket_cap_mb", parallel.bucket_cap_mb, 1e-6, 1e6);
  parallel.broadcast_buffers = json.flag("broadcast_buffers", parallel.broadcast_buffers);
  parallel.find_unused_parameters =
      json.flag("find_unused_parameters", parallel.find_unused_parameters);
  parallel.overlap =
      static_cast<step::Overlap>(read_name(json, "overlap", name_of(usual), step::kOverlapNames));
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
  refuse("precision.parameters \"{}\" needs precision.compute \"{}\", not \"{}\"",
         name_of(config.parameters), name_of(config.parameters), name_of(config.precision));
}

/// Each rank receives only its shard of the mean, with values in float32.
void check_zero_codec(const TrainConfig& config) {
  const std::string_view codec = config.parallel.codec;
  if (codec.starts_with("auto") || codec.starts_with("power_sgd")) {
    refuse(
        "parallel.codec {} is incompatible with zero.stage {}; use a codec of single "
        "values, such as int8",
        codec, config.zero.stage);
  }
  if (codec != "none" && config.parameters != Precision::fp32) {
    refuse("parallel.codec requires gradients in fp32; leave it or precision.parameters out");
  }
}

/// Rejects settings that need whole gradients or parameters.
void check_zero(const TrainConfig& config) {
  const auto with = [&](const char* key) {
    refuse("{} is incompatible with zero.stage {}; leave one of them out", key, config.zero.stage);
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
    refuse(
        "parallel.codec \"{0}\" compresses gradients, which are not sent with local_steps; use "
        "local_steps.codec \"{0}\" for the differences, or leave it out",
        config.parallel.codec);
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
      config.parallel.overlap == step::Overlap::full) {
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
    if (config.zero.stage == 0 && config.parallel.overlap == step::Overlap::full) {
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
  if (!text) refuse("the configuration: {}", text.error().message);
  try {
    return nlohmann::json::parse(*text, nullptr, true, /*ignore_comments=*/true);
  } catch (const nlohmann::json::parse_error& error) {
    refuse("{} is not JSON: {}", path.string(), error.what());
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
  config.parallel = read_parallel(root, json, wait ? step::Overlap::backward : step::Overlap::full);
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
    refuse(
        "batch_size {} is not divisible by {} ranks times {} "
        "accumulation_steps; make it a multiple of {}",
        config.batch_size, ranks, config.accumulation_steps, ranks * config.accumulation_steps);
  }
  return config.batch_size / ranks;
}

}  // namespace gradwire::recipe

#include "gradwire/recipe/train_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/json_document.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/engine_name.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/recipe/devices_config.h"
#include "gradwire/recipe/hogwild_config.h"
#include "gradwire/recipe/inside_config.h"
#include "gradwire/recipe/mesh_config.h"
#include "gradwire/recipe/servers_config.h"

namespace gradwire::recipe {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr std::int64_t kMaxSamples = 1'000'000'000;

/// Sets what depends on the name.
void set_usual(OptimizerConfig& optimizer) {
  const std::string& name = optimizer.name;
  if (name == "adam" || name == "radam") optimizer.learning_rate = 1e-3;
  if (name == "lars") optimizer.learning_rate = 1;  // The trust coefficient makes the step small.
  if (name == "lamb" || name == "ranger_lars" || name == "adagrad" || name == "yogi") {
    optimizer.learning_rate = 0.01;
  }
  if (name == "lamb") optimizer.epsilon = 1e-6;
  if (name == "yogi") optimizer.epsilon = 1e-3;
  if (name == "ranger_lars") optimizer.trust_coefficient = 1;
  if (name == "adagrad") {
    optimizer.epsilon = 1e-10;
    optimizer.momentum = 0;
  }
}

void read_moments(JsonFields& json, OptimizerConfig& optimizer) {
  optimizer.beta1 = json.number_or("beta1", optimizer.beta1, 0, 1);
  optimizer.beta2 = json.number_or("beta2", optimizer.beta2, 0, 1);
  optimizer.epsilon = json.number_or("epsilon", optimizer.epsilon, 0, 1);
}

void read_trust(JsonFields& json, OptimizerConfig& optimizer) {
  optimizer.trust_coefficient =
      json.number_or("trust_coefficient", optimizer.trust_coefficient, 1e-12, 1e6);
}

void read_lookahead(JsonFields& json, OptimizerConfig& optimizer) {
  optimizer.lookahead_steps =
      json.integer_or("lookahead_steps", optimizer.lookahead_steps, 1, kMany);
  optimizer.lookahead_rate = json.number_or("lookahead_rate", optimizer.lookahead_rate, 0, 1);
}

void read_momentum(JsonFields& json, OptimizerConfig& optimizer) {
  optimizer.momentum = json.number_or("momentum", optimizer.momentum, 0, 1);
  if (optimizer.name == "sgd") optimizer.nesterov = json.flag_or("nesterov", optimizer.nesterov);
  if (optimizer.name == "lars") read_trust(json, optimizer);
}

void read_scaling(JsonFields& json, OptimizerConfig& optimizer) {
  optimizer.scaling =
      json.choice_or("learning_rate_scaling", optimizer.scaling, {"none", "linear", "sqrt"});
  if (optimizer.scaling == "none") return;
  optimizer.base_batch_size = json.integer_or("base_batch_size", 0, 0, kMaxSamples);
  if (optimizer.base_batch_size > 0) return;
  refuse(
      "optimizer.learning_rate_scaling needs optimizer.base_batch_size: the batch size "
      "that optimizer.learning_rate was tuned for");
}

/// Reads what parameters may differ in; absent keys stay as they are.
void read_settings(JsonFields& json, OptimizerConfig& optimizer) {
  optimizer.learning_rate = json.number_or("learning_rate", optimizer.learning_rate, 0, 1e6);
  if (optimizer.has_moments()) {
    read_moments(json, optimizer);
    if (optimizer.name == "ranger_lars") {
      read_trust(json, optimizer);
      read_lookahead(json, optimizer);
    }
  } else if (optimizer.name == "adagrad") {
    optimizer.epsilon = json.number_or("epsilon", optimizer.epsilon, 0, 1);
  } else {
    read_momentum(json, optimizer);
  }
  optimizer.weight_decay = json.number_or("weight_decay", optimizer.weight_decay, 0, 1e6);
  if (optimizer.nesterov && optimizer.momentum == 0) {
    refuse("optimizer.nesterov needs optimizer.momentum above 0");
  }
}

ParameterGroup read_group(JsonFields json, const OptimizerConfig& optimizer) {
  ParameterGroup group{.match = json.texts_or("match", ""), .settings = optimizer};
  if (std::ranges::count(group.match, "") > 0 || group.match.empty()) {
    json.refuse("match", "a pattern of names of parameters, such as \"*.bias\", or a list of them");
  }
  read_settings(json, group.settings);
  json.refuse_others();
  return group;
}

}  // namespace

OptimizerConfig read_optimizer_in(JsonFields& json, std::string_view name_key,
                                  OptimizerConfig optimizer) {
  optimizer.name =
      json.choice_or(name_key, optimizer.name,
                     {"sgd", "adam", "adagrad", "radam", "yogi", "lars", "lamb", "ranger_lars"});
  set_usual(optimizer);
  read_settings(json, optimizer);
  return optimizer;
}

namespace {

OptimizerConfig read_optimizer(JsonFields json) {
  OptimizerConfig optimizer = read_optimizer_in(json, "name", {});
  read_scaling(json, optimizer);
  std::vector<ParameterGroup> groups;
  for (JsonFields& group : json.objects_or_empty("groups")) {
    groups.push_back(read_group(std::move(group), optimizer));
  }
  optimizer.groups = std::move(groups);
  json.refuse_others();
  return optimizer;
}

}  // namespace

bool OptimizerConfig::has_moments() const {
  return name == "adam" || name == "radam" || name == "yogi" || name == "lamb" ||
         name == "ranger_lars";
}

bool OptimizerConfig::takes_norms() const {
  return name == "lars" || name == "lamb" || name == "ranger_lars";
}

step::LocalStepsConfig read_local_steps(JsonFields json) {
  step::LocalStepsConfig config;
  config.steps = json.integer_or("steps", 0, 0, kMany);  // 0: the key is absent.
  config.outer_learning_rate = json.number_or("outer_learning_rate", 1, 0, 1e6);
  config.outer_momentum = json.number_or("outer_momentum", 0, 0, 1);
  config.fragments = json.integer_or("fragments", 1, 1, kMany);
  config.overlap_steps = json.integer_or("overlap_steps", 0, 0, kMany);
  config.mixing = json.number_or("mixing", config.overlap_steps > 0 ? 0.5 : 0, 0, 1);
  config.codec = json.text_or("codec", config.codec);
  json.refuse_others();
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

void read_offload(JsonFields json, ZeroConfig& zero) {
  zero.offload_device = json.choice_or("device", "none", {"none", "nvme"});
  zero.offload_path = json.text_or("nvme_path", "");
  json.refuse_others();
  if ((zero.offload_device == "nvme") == zero.offload_path.empty()) {
    refuse(
        "zero.offload_optimizer needs both \"device\": \"nvme\" and \"nvme_path\", a "
        "folder on a disk, or neither");
  }
}

/// Refuses what another stage does.
void check_zero_keys(const JsonFields& json, std::int64_t stage) {
  const auto refuse_if_present = [&](std::string_view key, std::string_view stages) {
    if (json.has(key)) refuse("zero.{} needs zero.stage {}, not {}", key, stages, stage);
  };
  if (stage == 0) {
    for (const auto* key : {"reduce_bucket_size", "overlap_comm"}) refuse_if_present(key, "1 to 3");
  }
  if (stage == 3) return;
  for (const auto* key : {"stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"}) {
    refuse_if_present(key, "3");
  }
}

}  // namespace

ZeroConfig read_zero(JsonFields json) {
  constexpr std::int64_t kManyElements = 1'000'000'000'000;
  ZeroConfig zero;
  zero.stage = json.integer_or("stage", zero.stage, 0, 3);
  zero.reduce_bucket_size =
      json.integer_or("reduce_bucket_size", zero.reduce_bucket_size, 0, kManyElements);
  zero.overlap_comm = json.flag_or("overlap_comm", zero.overlap_comm);
  zero.stage3_prefetch_bucket_size = json.integer_or(
      "stage3_prefetch_bucket_size", zero.stage3_prefetch_bucket_size, 0, kManyElements);
  zero.stage3_param_persistence_threshold =
      json.integer_or("stage3_param_persistence_threshold", zero.stage3_param_persistence_threshold,
                      0, kManyElements);
  check_zero_keys(json, zero.stage);
  read_offload(json.object_or_empty("offload_optimizer"), zero);
  json.refuse_others();
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

void read_dynamic(JsonFields& json, LossScalerOptions& options) {
  const auto usual = static_cast<std::int64_t>(std::log2(options.scale));
  options.scale = std::exp2(json.integer_or("initial_scale_power", usual, 0, 40));
  options.growth_interval =
      json.integer_or("loss_scale_window", options.growth_interval, 1, 1'000'000'000);
  options.hysteresis = json.integer_or("hysteresis", options.hysteresis, 1, 1'000'000);
  options.consecutive_hysteresis =
      json.flag_or("consecutive_hysteresis", options.consecutive_hysteresis);
  options.min_scale = json.number_or("min_loss_scale", options.min_scale, kMinScale, kMaxScale);
  if (options.min_scale <= options.scale) return;
  refuse(
      "fp16.min_loss_scale is {}, above the initial scale {}: 2 to the power of "
      "fp16.initial_scale_power",
      options.min_scale, options.scale);
}

void refuse_dynamic(const JsonFields& json, double scale) {
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

LossScalerOptions read_loss_scaling(JsonFields json, Precision computing) {
  if (computing != Precision::fp16 && !json.empty() && !json.has("enabled")) {
    refuse(
        "fp16 configures loss scaling of precision \"fp16\", but precision is \"{}\"; "
        "leave one of them out",
        name_of(computing));
  }
  check_enabled(json.flag_or("enabled", computing == Precision::fp16), computing);
  LossScalerOptions options;
  const double fixed = json.number_or("loss_scale", 0, 0, kMaxScale);
  if (fixed > 0) refuse_dynamic(json, fixed);
  read_dynamic(json, options);
  json.refuse_others();
  if (fixed == 0) return options;
  if (fixed < kMinScale) {
    refuse("fp16.loss_scale is {}; it must be 0 (dynamic) or at least {}", fixed, kMinScale);
  }
  options.fixed = true;
  options.scale = fixed;
  return options;
}

namespace {

void read_transformer(JsonFields& json, ModelConfig& model) {
  model.width = json.integer_or("width", model.width, 1, 1 << 16);
  model.layers = json.integer_or("layers", model.layers, 1, 1000);
  model.heads = json.integer_or("heads", model.heads, 1, 1 << 16);
  if (model.name == "gpt") {
    model.vocabulary = json.integer_or("vocabulary", model.vocabulary, 256, 1 << 24);
    model.dropout = json.number_or("dropout", model.dropout, 0, 0.99);
    model.tie_word_embeddings = json.flag_or("tie_word_embeddings", model.tie_word_embeddings);
  }
  json.refuse_others();
  if (model.width % model.heads == 0) return;
  refuse("model.width {} is not divisible by model.heads {}", model.width, model.heads);
}

void read_resnet(JsonFields& json, ModelConfig& model) {
  model.channels = json.integer_or("channels", model.channels, 1, 4096);
  model.blocks = json.integer_or("blocks", model.blocks, 1, 1000);
  model.groups = json.integer_or("groups", model.groups, 1, 4096);
  json.refuse_others();
  if (model.channels % model.groups == 0) return;
  refuse("model.channels {} is not divisible by model.groups {}", model.channels, model.groups);
}

void read_activation_checkpointing(JsonFields json, ModelConfig& model) {
  model.checkpoints = json.integer_or("number_checkpoints", 0, 0, kMany);
  if (json.flag_or("partition_activations", false)) {
    refuse(
        "activation_checkpointing.partition_activations requires ranks that compute the same "
        "activations (tensor parallelism); data-parallel ranks have different batches. In your own "
        "program use ActivationCheckpointOptions::partition_group");
  }
  json.refuse_others();
  if (model.checkpoints <= blocks_of(model)) return;
  refuse("activation_checkpointing.number_checkpoints is {}; model \"{}\" has {} blocks",
         model.checkpoints, model.name, blocks_of(model));
}

ModelConfig read_click_model(JsonFields json, const ClickOptions& clicks) {
  ModelConfig model{.name = json.choice_or("name", "dlrm", {"dlrm"}),
                    .hidden = json.integer_or("hidden", 64, 1, 1 << 20),
                    .width = json.integer_or("width", 16, 1, 1 << 16),
                    .rows = clicks.rows,
                    .fields = clicks.fields,
                    .dense = clicks.dense};
  json.refuse_others();
  return model;
}

/// `data` selects the kind of model, and so its default name.
ModelConfig read_model(JsonFields json, const DataConfig& data) {
  if (data.name == "click_through") return read_click_model(std::move(json), data.clicks);
  ModelConfig model;
  const bool text = data.name == "text";
  model.name = text ? json.choice_or("name", "transformer", {"transformer", "gpt"})
                    : json.choice_or("name", model.name, {"convnet", "mlp", "resnet"});
  if (text) {
    read_transformer(json, model);
    model.context = data.context;
    return model;
  }
  if (model.name == "resnet") {
    read_resnet(json, model);
    return model;
  }
  if (model.name == "convnet")
    model.channels = json.integer_or("channels", model.channels, 1, 4096);
  if (model.name == "mlp") model.layers = json.integer_or("layers", model.layers, 2, 1000);
  model.hidden = json.integer_or("hidden", model.hidden, 1, 1 << 20);
  model.dropout = json.number_or("dropout", model.dropout, 0, 0.99);
  json.refuse_others();
  return model;
}

ClickOptions read_clicks(JsonFields& json) {
  ClickOptions clicks;
  clicks.samples = json.integer_or("samples", clicks.samples, 1, kMaxSamples);
  clicks.rows = json.integer_or("rows", clicks.rows, 1, kMaxSamples);
  clicks.fields = json.integer_or("fields", clicks.fields, 1, 1000);
  clicks.dense = json.integer_or("dense", clicks.dense, 1, 1000);
  clicks.seed = static_cast<std::uint64_t>(json.integer_or("seed", 1, 0));
  if (clicks.rows < clicks.fields) {
    refuse("data.rows is {}, and data.fields {}: each categorical field needs an id", clicks.rows,
           clicks.fields);
  }
  return clicks;
}

DataConfig read_data(JsonFields json) {
  DataConfig data;
  data.name = json.choice_or("name", data.name, {"fashion_mnist", "text", "click_through"});
  if (data.name == "text") data.context = json.integer_or("context", data.context, 1, 1 << 16);
  if (data.name == "click_through") {
    data.clicks = read_clicks(json);
  } else {
    data.path = json.text_or("path", data.path);
  }
  data.limit = json.integer_or("limit", data.limit, 0, kMany);
  data.uneven = json.choice_or("uneven", "drop", {"drop", "pad"}) == "pad" ? UnevenBatch::pad
                                                                           : UnevenBatch::drop;
  data.prefetch = json.integer_or("prefetch", data.prefetch, 1, 1024);
  json.refuse_others();
  return data;
}

ScheduleConfig read_schedule(JsonFields json) {
  ScheduleConfig schedule;
  schedule.warmup_epochs = json.number_or("warmup_epochs", schedule.warmup_epochs, 0, 1e6);
  schedule.decay = json.choice_or("decay", schedule.decay, {"constant", "cosine"});
  if (schedule.decay == "cosine") {
    schedule.final_fraction = json.number_or("final_fraction", schedule.final_fraction, 0, 1);
  }
  json.refuse_others();
  return schedule;
}

/// Returns the index in `names` of the string at `key`.
template <class Names>
std::size_t read_name(JsonFields& json, std::string_view key, std::string_view otherwise,
                      const Names& names) {
  const auto chosen =
      json.choice_or(key, std::string(otherwise), {std::begin(names), std::end(names)});
  return static_cast<std::size_t>(std::ranges::find(names, chosen) - std::begin(names));
}

/// Returns the alias in `names` that the configuration uses; the first, gradwire's own, if none.
std::string_view name_used(const nlohmann::ordered_json& json,
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
void read_codec(JsonFields& root, const nlohmann::ordered_json& whole, JsonFields& json,
                ParallelConfig& parallel) {
  const bool is_short = whole.contains("codec");
  if (is_short && whole.contains("parallel") && whole["parallel"].contains("codec")) {
    refuse("codec and parallel.codec are the same; leave one out");
  }
  parallel.codec = (is_short ? root : json).text_or("codec", parallel.codec);
  const auto known = codec::check_codec(parallel.codec);
  if (!known) refuse((is_short ? "codec: " : "parallel.codec: ") + known.error().message);
  parallel.codec_min_elements =
      json.integer_or("codec_min_elements", parallel.codec_min_elements, 0, kMany);
  parallel.codec_warmup_steps = json.integer_or("codec_warmup_steps", 0, 0, kMany);
}

/// `usual`: default overlap.
ParallelConfig read_parallel(JsonFields& root, const nlohmann::ordered_json& whole,
                             step::Overlap usual) {
  auto json = root.object_or_empty("parallel");
  ParallelConfig parallel;
  parallel.bucket_cap_mb = json.number_or("bucket_cap_mb", parallel.bucket_cap_mb, 1e-6, 1e6);
  parallel.broadcast_buffers = json.flag_or("broadcast_buffers", parallel.broadcast_buffers);
  parallel.find_unused_parameters =
      json.flag_or("find_unused_parameters", parallel.find_unused_parameters);
  parallel.overlap =
      static_cast<step::Overlap>(read_name(json, "overlap", name_of(usual), step::kOverlapNames));
  read_codec(root, whole, json, parallel);
  parallel.check_finite = json.flag_or("check_finite", parallel.check_finite);
  json.refuse_others();
  return parallel;
}

std::string read_engine(JsonFields& root) {
  std::string engine = root.text_or("engine", "");
  const std::string why = engine.empty() ? "" : bootstrap::engine_refusal(engine);
  if (!why.empty()) refuse("{}", why);
  return engine;
}

/// `precision` is a string (of the computation), or an object that also sets the parameters'
/// precision.
void read_precision(JsonFields& root, const nlohmann::ordered_json& json, TrainConfig& config) {
  const auto read = [](JsonFields& from, std::string_view key, std::string_view usual) {
    return static_cast<Precision>(read_name(from, key, usual, kPrecisionNames));
  };
  if (!json.contains("precision") || !json["precision"].is_object()) {
    config.precision = read(root, "precision", "fp32");
    return;
  }
  auto precision = root.object_or_empty("precision");
  config.parameters = read(precision, "parameters", "fp32");
  config.precision = read(precision, "compute", name_of(config.parameters));
  precision.refuse_others();
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
  if (config.parallel.find_unused_parameters) with("parallel.find_unused_parameters");
}

/// Returns true if no parameter may be stepped before all gradients are known.
bool looks_at_all_gradients(const TrainConfig& config) {
  return config.precision == Precision::fp16 || config.gradient_clipping > 0;
}

/// With local steps, ranks step independently and never see the mean gradients. `parallel`: the
/// configuration's object.
void check_local_steps_with(const TrainConfig& config, const JsonFields& parallel) {
  if (!config.local_steps.enabled) return;
  for (const auto* key :
       {"bucket_cap_mb", "broadcast_buffers", "find_unused_parameters", "overlap"}) {
    if (!parallel.has(key)) continue;
    refuse("parallel.{} is of gradients that are averaged, which local_steps do not; leave it out",
           key);
  }
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

void check_together(JsonFields& root, const TrainConfig& config) {
  check_zero(config);
  check_local_steps_with(config, root.object_or_empty("parallel"));
  check_mesh(root, config);
  check_servers(config);
  check_devices(root, config);
  check_inside(root, config);
  check_hogwild(root, config);
  const bool steps_replicas =
      !config.uses_pipeline() && config.zero.stage == 0 && !config.servers.enabled;
  if (steps_replicas && config.gradient_clipping > 0 &&
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
}

/// Keys are sorted. A path from the command line may not be UTF-8, which JSON requires.
std::string text_of(const nlohmann::ordered_json& json) {
  return nlohmann::json(json).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::ordered_json read_json(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) refuse("the configuration: {}", text.error().message);
  return value_or_throw(parse_json_document(*text, path.string(), JsonComments::ignored));
}

}  // namespace

nlohmann::ordered_json read_configuration(const std::filesystem::path& path,
                                          const std::vector<std::string>& settings) {
  auto json = read_json(path);
  for (const auto& setting : settings) apply_setting(json, setting);
  return json;
}

void apply_setting(nlohmann::ordered_json& config, std::string_view setting) {
  const auto equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    refuse("setting '{}' is not of the form key.sub=value", setting);
  }
  const auto text = setting.substr(equals + 1);
  const auto value = nlohmann::ordered_json::parse(text, nullptr, false);
  auto* place = &config;
  for (auto keys = setting.substr(0, equals); !keys.empty();) {
    if (!place->is_object()) {
      refuse("setting '{}': found {} where an object is expected", setting, text_of(*place));
    }
    const auto dot = std::min(keys.find('.'), keys.size());
    place = &(*place)[std::string(keys.substr(0, dot))];
    if (place->is_null() && dot < keys.size()) *place = nlohmann::ordered_json::object();
    keys.remove_prefix(std::min(dot + 1, keys.size()));
  }
  *place = value.is_discarded()
               ? nlohmann::ordered_json(text)
               : value_or_throw(parse_json_document(text, fmt::format("setting '{}'", setting)));
}

TrainConfig parse_train_config(const nlohmann::ordered_json& json) {
  JsonFields root(json, "", "the configuration");
  TrainConfig config;
  config.data = read_data(root.object_or_empty("data"));
  config.model = read_model(root.object_or_empty("model"), config.data);
  read_activation_checkpointing(root.object_or_empty("activation_checkpointing"), config.model);
  config.optimizer = read_optimizer(root.object_or_empty("optimizer"));
  config.schedule = read_schedule(root.object_or_empty("schedule"));
  read_precision(root, json, config);
  config.loss_scaling = read_loss_scaling(root.object_or_empty("fp16"), config.precision);
  config.zero = read_zero(root.object_or_empty(name_used(json, {"zero", "zero_optimization"})));
  if (root.has("servers")) config.servers = read_servers(root.object_or_empty("servers"));
  config.devices = read_devices(root);
  config.engine = read_engine(root);
  config.inside = read_inside(root);
  if (root.has("hogwild")) config.hogwild = read_hogwild(root.object_or_empty("hogwild"));
  config.gradient_clipping = root.number_or("gradient_clipping", 0, 0, 1e30);
  const bool is_sharded = config.zero.stage > 0 || config.servers.enabled;
  const bool wait = !is_sharded && looks_at_all_gradients(config);
  config.parallel = read_parallel(root, json, wait ? step::Overlap::backward : step::Overlap::full);
  config.local_steps = read_local_steps(root.object_or_empty("local_steps"));
  read_mesh(root, config);
  config.epochs = root.integer_or("epochs", config.epochs, 1, 1'000'000);
  config.batch_size = root.integer_or("batch_size", config.batch_size, 1, kMany);
  config.accumulation_steps = root.integer_or(
      name_used(json,
                {"accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation"}),
      1, 1, kMany);
  config.seed = static_cast<std::uint64_t>(root.integer_or("seed", 1, 0));
  config.evaluate_every = root.integer_or("evaluate_every", 0, 0, kMany);
  config.checkpoint = root.text_or("checkpoint", config.checkpoint);
  config.checkpoint_every = root.integer_or("checkpoint_every", 0, 0, kMany);
  config.checkpoint_folder = root.text_or("checkpoint_folder", config.checkpoint_folder);
  config.checkpoint_keep = root.integer_or("checkpoint_keep", config.checkpoint_keep, 0, kMany);
  config.resume = root.text_or("resume", config.resume);
  config.trace = root.text_or("trace", config.trace);
  root.refuse_others();
  config.model.rows_are_served = config.servers.rows.enabled;
  config.model_text = text_of(json.value("model", nlohmann::ordered_json::object()));
  check_together(root, config);
  return config;
}

TrainConfig load_train_config(const std::filesystem::path& path,
                              const std::vector<std::string>& settings) {
  const auto json = read_configuration(path, settings);
  try {
    return parse_train_config(json);
  } catch (const Exception& error) {
    throw Exception(error.kind(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

std::string configuration_text(const std::filesystem::path& path,
                               const std::vector<std::string>& settings) {
  return text_of(read_configuration(path, settings));
}

std::int64_t blocks_of(const ModelConfig& model) {
  if (model.name == "resnet") return 4 * model.blocks;
  return model.name == "transformer" || model.name == "gpt" ? model.layers : 0;
}

int replicas_of(const TrainConfig& config, int ranks) {
  return complete_degrees(config.mesh, ranks).data;
}

std::int64_t batch_size_per_replica(const TrainConfig& config, int ranks) {
  const int replicas = replicas_of(config, ranks);
  check_groups(config.servers, ranks);
  if (config.batch_size % (replicas * config.accumulation_steps) != 0) {
    refuse(
        "batch_size {} is not divisible by {} {} times {} "
        "accumulation_steps; make it a multiple of {}",
        config.batch_size, replicas, replicas == ranks ? "ranks" : "replicas",
        config.accumulation_steps, replicas * config.accumulation_steps);
  }
  return config.batch_size / replicas;
}

}  // namespace gradwire::recipe

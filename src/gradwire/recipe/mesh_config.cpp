#include "gradwire/recipe/mesh_config.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/weight_rules.h"

namespace gradwire::recipe {
namespace {

constexpr std::int64_t kMaxDegree = 1 << 16;

/// Height and width of the smallest image that a convolution of "convnet" or "resnet" gets.
std::int64_t smallest_side(const ModelConfig& model) {
  return model.name == "resnet" ? 4 : 14;  // 28, halved three times, or once.
}

MeshDegrees read_degrees(JsonFields json) {
  MeshDegrees mesh;
  const auto read = [&](const char* key, int min) {
    return static_cast<int>(json.integer_or(key, min, min, kMaxDegree));
  };
  mesh.data = read("data", 0);
  mesh.pipeline = read("pipeline", 1);
  mesh.tensor = read("tensor", 1);
  mesh.spatial = read("spatial", 1);
  json.refuse_others();
  return mesh;
}

/// Which layers are divided over mesh.tensor.
TensorPlan read_tensor(JsonFields json, const TrainConfig& config) {
  if (config.mesh.tensor == 1) {
    if (!json.empty()) refuse("tensor divides layers, but mesh.tensor is 1; set it to their ranks");
    return {};
  }
  if (config.model.name == "dlrm") {
    refuse("mesh.tensor is {}, but no layer of dlrm can be divided; leave it out",
           config.mesh.tensor);
  }
  std::map<std::string, bool> divides;
  auto plan = json.object_or_empty("plan");
  for (const std::string& pattern : plan.keys()) {
    divides[pattern] = plan.choice_or(pattern, "", {"divided", "replicated"}) == "divided";
  }
  json.refuse_others();
  const TensorPlan read = tensor_plan(config.model, divides);
  check_divisible(config.model, read, config.mesh.tensor);
  if (config.optimizer.takes_norms()) {
    refuse(
        "optimizer {} needs norms of whole parameters, which mesh.tensor divides; use adam or sgd",
        config.optimizer.name);
  }
  return read;
}

/// Numbers of parts into which mesh.spatial divides height and width.
SpatialConfig read_spatial(JsonFields json, const TrainConfig& config) {
  const int ranks = config.mesh.spatial;
  if (ranks == 1) {
    if (!json.empty())
      refuse("spatial divides images, but mesh.spatial is 1; set it to their ranks");
    return {};
  }
  const std::string& model = config.model.name;
  if (model != "convnet" && model != "resnet") {
    refuse("mesh.spatial is {}, but {} has no convolutions; use mesh.tensor, or convnet or resnet",
           ranks, model);
  }
  if (config.mesh.tensor > 1) {
    refuse("mesh.tensor and mesh.spatial both divide the convolutions of {}; leave one out", model);
  }
  SpatialConfig spatial;
  const std::int64_t smallest = smallest_side(config.model);
  spatial.width = static_cast<int>(json.integer_or("width", 1, 1, smallest));
  spatial.height =
      static_cast<int>(json.integer_or("height", ranks / spatial.width, 1, kMaxDegree));
  json.refuse_others();
  if (spatial.height * spatial.width != ranks) {
    refuse("spatial.height {} times spatial.width {} is not mesh.spatial {}", spatial.height,
           spatial.width, ranks);
  }
  if (spatial.height > smallest) {
    refuse("spatial.height is {}, but the smallest image in {} has {} rows; use at most as many",
           spatial.height, model, smallest);
  }
  return spatial;
}

pipeline::PipelineCosts read_pipeline_costs(JsonFields json) {
  constexpr double kMaxMs = 1e9;
  pipeline::PipelineCosts costs;
  if (json.empty()) return costs;
  const auto seconds = [&](std::string_view key) {
    std::vector<double> all = json.numbers(key);
    for (double& value : all) {
      if (!(value >= 0 && value <= kMaxMs)) {
        refuse("pipeline.costs.{} has {}; expected milliseconds, 0 to {}", key, value, kMaxMs);
      }
      value /= 1e3;
    }
    return all;
  };
  const auto forward = seconds("forward_ms"), input = seconds("input_ms"),
             weight = seconds("weight_ms");
  if (input.size() != forward.size() || weight.size() != forward.size() ||
      std::ranges::count(forward, 0) > 0) {
    refuse(
        "pipeline.costs has {} times of forwards, {} of gradients of inputs and {} of gradients of "
        "weights; expected one of each stage, those of forwards above 0",
        forward.size(), input.size(), weight.size());
  }
  for (std::size_t i = 0; i < forward.size(); ++i)
    costs.stages.push_back({forward[i], input[i], weight[i]});
  if (json.has("transfer_ms")) costs.transfers = seconds("transfer_ms");
  costs.latency = json.number_or("latency_ms", 0, 0, 1e6) / 1e3;
  json.refuse_others();
  return costs;
}

/// "none" or a codec of single values, or a list of them. Returns them separated by commas.
std::string read_activation_codec(JsonFields& json, std::string_view key) {
  const auto names = json.texts_or(key, "none");
  for (const std::string& name : names) {
    if (name == "none") continue;
    const auto known = codec::make_codec(name);
    if (!known) refuse("pipeline.codec.{}: {}", key, known.error().message);
  }
  return fmt::format("{}", fmt::join(names, ","));
}

/// One codec, or one for each boundary between stages.
void check_codecs(const PipelineConfig& pipeline, int stages) {
  for (const auto& [key, names] :
       {std::pair("forward", &pipeline.forward_codec), {"backward", &pipeline.backward_codec}}) {
    const auto count = std::ranges::count(*names, ',') + 1;
    if (count == 1 || count == stages - 1) continue;
    refuse("pipeline.codec.{} has {} codecs; expected one, or one for each of {} boundaries", key,
           count, stages - 1);
  }
}

PipelineConfig read_pipeline(JsonFields json, const MeshDegrees& mesh) {
  constexpr std::int64_t kMaxMicroBatches = 1 << 16;
  constexpr std::int64_t kMaxLayers = 1 << 20;
  if (!json.empty() && mesh.pipeline == 1) {
    refuse("pipeline configures several stages, but mesh.pipeline is 1; set it to their ranks");
  }
  PipelineConfig pipeline;
  pipeline.micro_batches =
      json.integer_or("micro_batches", pipeline.micro_batches, 1, kMaxMicroBatches);
  pipeline.schedule = json.text_or("schedule", pipeline.schedule);
  pipeline.weights = json.text_or("weights", pipeline.weights);
  if (json.has("cut")) {
    for (const std::int64_t layers : json.integers("cut", 1, kMaxLayers)) {
      pipeline.cut.push_back(static_cast<std::size_t>(layers));
    }
  }
  pipeline.costs = read_pipeline_costs(json.object_or_empty("costs"));
  pipeline.recompute = json.flag_or("recompute", pipeline.recompute);
  JsonFields codecs = json.object_or_empty("codec");
  pipeline.forward_codec = read_activation_codec(codecs, "forward");
  pipeline.backward_codec = read_activation_codec(codecs, "backward");
  codecs.refuse_others();
  json.refuse_others();
  if (mesh.pipeline == 1) return pipeline;
  const auto schedule = pipeline::make_pipeline(
      pipeline.schedule, {.ranks = mesh.pipeline,
                          .micro_batches = static_cast<int>(pipeline.micro_batches),
                          .costs = pipeline.costs});
  if (!schedule) refuse("pipeline.schedule: {}", schedule.error().message);
  if (!schedule->trains) {
    refuse("pipeline.schedule {} does not train; use 1f1b, zero_bubble, ...", pipeline.schedule);
  }
  const auto method = pipeline::weight_method_for(pipeline.schedule, pipeline.weights);
  if (!method) refuse("pipeline.weights: {}", method.error().message);
  check_codecs(pipeline, schedule->stages());
  return pipeline;
}

/// Refuses settings that a Pipeline does not have. `parallel`: the configuration's object.
void check_pipeline(const TrainConfig& config, const JsonFields& parallel) {
  if (!config.uses_pipeline()) return;
  const std::string_view reason = config.mesh.pipeline > 1  ? "mesh.pipeline above 1"
                                  : config.mesh.tensor > 1  ? "mesh.tensor above 1"
                                  : config.mesh.spatial > 1 ? "mesh.spatial above 1"
                                                            : "model.tie_word_embeddings";
  const auto refuse_if = [&](bool wrong, std::string_view key, std::string_view remedy) {
    if (wrong) refuse("{} is incompatible with {}; {}", key, reason, remedy);
  };
  const std::string_view leave = "leave one of them out";
  refuse_if(config.local_steps.enabled, "local_steps", leave);
  refuse_if(config.mesh.pipeline > 1 && config.accumulation_steps > 1, "accumulation_steps",
            "use pipeline.micro_batches");
  refuse_if(config.precision != Precision::fp32, "precision", "use fp32");
  refuse_if(config.parallel.check_finite, "parallel.check_finite", leave);
  refuse_if(parallel.has("broadcast_buffers"), "parallel.broadcast_buffers",
            "leave it out: the first replica's buffers are those of the trained model");
  refuse_if(config.parallel.find_unused_parameters, "parallel.find_unused_parameters", leave);
  refuse_if(!config.zero.offload_path.empty(), "zero.offload_optimizer", leave);
}

/// Refuses an optimizer that a method for weights does not know.
void check_weights(pipeline::WeightMethod method, const OptimizerConfig& optimizer) {
  using pipeline::WeightMethod;
  const bool has_momentum = optimizer.name == "sgd" && optimizer.momentum > 0;
  const bool predicts = method == WeightMethod::spectrain || method == WeightMethod::lwp_v;
  if (predicts && !has_momentum && optimizer.name != "adam") {
    refuse("pipeline.weights {} needs adam, or sgd with optimizer.momentum; use lwp_w or stash",
           name_of(method));
  }
  if (method == WeightMethod::spike_compensation &&
      (optimizer.name != "sgd" || optimizer.nesterov)) {
    refuse("pipeline.weights {} needs optimizer.name sgd without optimizer.nesterov; use stash",
           name_of(method));
  }
}

/// Refuses what needs the gradients or weights of a whole step.
void check_asynchronous(const TrainConfig& config) {
  if (config.mesh.pipeline == 1) return;
  const std::string& schedule = config.pipeline.schedule;
  const auto method =
      value_or_throw(pipeline::weight_method_for(schedule, config.pipeline.weights));
  if (method == pipeline::WeightMethod::flush) return;
  check_weights(method, config.optimizer);
  for (const auto& group : config.optimizer.groups) check_weights(method, group.settings);
  const auto refuse_if = [&](bool wrong, std::string_view key, std::string_view remedy) {
    if (!wrong) return;
    refuse(
        "{} is incompatible with pipeline.schedule {}, which updates each stage on its own; {}, or "
        "use a synchronous schedule, such as zero_bubble",
        key, schedule, remedy);
  };
  refuse_if(config.zero.stage > 0, "zero.stage above 0", "use 0, whose replicas have whole stages");
  refuse_if(config.gradient_clipping > 0, "gradient_clipping", "leave it out");
  refuse_if(config.model.tie_word_embeddings, "model.tie_word_embeddings", "leave it out");
  if (keeps_weights(method)) return;
  if (!config.pipeline.recompute && config.model.checkpoints == 0) return;
  refuse(
      "{} needs a backward with the weights of its forward, but pipeline.weights {} use others; "
      "use stash or 2bw, or leave it out",
      config.pipeline.recompute ? "pipeline.recompute"
                                : "activation_checkpointing.number_checkpoints",
      name_of(method));
}

void check_ties(const TrainConfig& config) {
  if (!config.model.tie_word_embeddings) return;
  if (config.tensor.divides("embedding") != config.tensor.divides("head")) {
    refuse(
        "model.tie_word_embeddings ties embedding and head, of which tensor.plan divides one; "
        "divide or replicate both");
  }
}

}  // namespace

void read_mesh(JsonFields& root, TrainConfig& config) {
  config.mesh = read_degrees(root.object_or_empty("mesh"));
  config.pipeline = read_pipeline(root.object_or_empty("pipeline"), config.mesh);
  config.tensor = read_tensor(root.object_or_empty("tensor"), config);
  config.spatial = read_spatial(root.object_or_empty("spatial"), config);
}

void check_mesh(JsonFields& root, const TrainConfig& config) {
  check_pipeline(config, root.object_or_empty("parallel"));
  check_asynchronous(config);
  check_ties(config);
}

}  // namespace gradwire::recipe

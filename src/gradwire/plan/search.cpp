#include "gradwire/plan/search.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

namespace gradwire::plan {
namespace {

constexpr double kEqual = 1e-4;

/// Returns the same global batch in 1, 2, 4, ... passes, as long as passes have whole samples.
std::vector<PlanInput> cut_into_passes(const PlanInput& input) {
  std::vector<PlanInput> all;
  const double samples = input.strategy.batch * input.strategy.accumulate;
  for (int passes = 1; samples / passes >= 1 || passes == 1; passes *= 2) {
    if (passes > 1 && std::fmod(samples, passes) != 0) break;
    PlanInput one = input;
    one.strategy.accumulate = passes;
    one.strategy.batch = samples / passes;
    const double part = one.strategy.batch / input.strategy.batch;
    one.measured.step *= part;
    one.model.recorded_seconds *= part;
    all.push_back(std::move(one));
  }
  return all;
}

class Search {
 public:
  explicit Search(double memory_bytes) : memory_bytes_(memory_bytes) {}

  void consider(PlanInput input) {
    const MemoryUse memory = memory_use(input);
    if (memory.total() > memory_bytes_) return;
    const StepTime time = step_time(input);
    found_.push_back({std::move(input), time, memory});
  }

  std::vector<FoundStrategy> best_first() {
    std::ranges::stable_sort(found_, [](const FoundStrategy& a, const FoundStrategy& b) {
      const double difference = b.time.step - a.time.step;
      if (std::abs(difference) > kEqual * a.time.step) return difference > 0;
      return a.memory.total() < b.memory.total();
    });
    return std::move(found_);
  }

 private:
  double memory_bytes_;
  std::vector<FoundStrategy> found_;
};

void consider_stages(Search& search, const PlanInput& input,
                     const std::vector<std::string>& codecs) {
  const std::vector<std::string> none{"none"};
  for (const bool recompute : {false, true}) {
    // `gradwire train` recomputes only blocks of transformers.
    if (recompute && input.model.transformer.layers == 0) break;
    PlanInput one = input;
    one.strategy.recompute = recompute;
    // Only ZeRO has 16-bit parameters, and no codec takes their gradients.
    const bool mixed = one.strategy.compute == ComputeType::mixed;
    const int stages = one.strategy.data() > 1 ? 3 : 0;
    for (int stage = mixed ? 1 : 0; stage <= stages; ++stage) {
      one.strategy.zero_stage = stage;
      for (const std::string& codec : mixed ? none : codecs) {
        one.strategy.codec = codec;
        search.consider(one);
      }
    }
  }
}

/// Adds the model to the configuration: `gradwire train` can build models like GPT-2.
void add_model(nlohmann::ordered_json& json, const TransformerShape& shape) {
  json["model"] = {{"name", "gpt"},
                   {"layers", shape.layers},
                   {"width", shape.width},
                   {"heads", shape.heads},
                   {"vocabulary", shape.vocabulary}};
  json["data"] = {{"name", "text"}, {"context", shape.tokens}};
}

nlohmann::ordered_json costs_json(const pipeline::PipelineCosts& costs) {
  nlohmann::ordered_json json;
  for (const pipeline::StageCosts& stage : costs.stages) {
    json["forward_ms"].push_back(configured_milliseconds(stage.forward));
    json["input_ms"].push_back(configured_milliseconds(stage.backward_input));
    json["weight_ms"].push_back(configured_milliseconds(stage.backward_weight));
  }
  for (const double seconds : costs.transfers)
    json["transfer_ms"].push_back(configured_milliseconds(seconds));
  json["latency_ms"] = configured_milliseconds(costs.latency);
  return json;
}

void make_pipeline_of(nlohmann::ordered_json& json, const Strategy& s,
                      const PipelineSettings& settings) {
  json.erase("accumulation_steps");
  json["precision"] = "fp32";
  if (s.data() == 1) json.erase("parallel");
  json["mesh"] = {{"data", s.data()}, {"pipeline", s.pipeline}};
  json["pipeline"] = {{"micro_batches", s.micro_batches}, {"schedule", s.schedule}};
  if (!settings.cut.empty()) json["pipeline"]["cut"] = settings.cut;
  if (!settings.costs.stages.empty()) json["pipeline"]["costs"] = costs_json(settings.costs);
}

}  // namespace

std::vector<FoundStrategy> search_strategies(const PlanInput& input, const SearchSpace& space) {
  PlanInput base = input;
  base.strategy.overlap = step::Overlap::full;
  base.strategy.tensor = base.strategy.pipeline = base.strategy.micro_batches = 1;
  base.strategy.zero_stage = base.strategy.servers = 0;
  base.strategy.algorithm = "auto";
  Search search(space.memory_bytes > 0 ? space.memory_bytes : input.device.memory_bytes);
  for (const PlanInput& passes : cut_into_passes(base))
    consider_stages(search, passes, space.codecs);
  return search.best_first();
}

double configured_milliseconds(double seconds) {
  return std::round(1e9 * seconds) / 1e6;
}

std::string train_config(const PlanInput& input, const PipelineSettings& pipeline) {
  const Strategy& s = input.strategy;
  const bool adam = s.optimizer == OptimizerKind::adam;
  nlohmann::ordered_json json = {
      {"batch_size", std::llround(s.global_batch())},
      {"accumulation_steps", s.accumulate},
      {"precision", s.compute == ComputeType::fp32 ? "fp32" : "bf16"},
      {"optimizer", {{"name", adam ? "adam" : "sgd"}}},
      {"parallel", {{"overlap", name_of(s.overlap)}, {"codec", s.codec}}}};
  if (!adam) json["optimizer"]["momentum"] = s.optimizer == OptimizerKind::momentum ? 0.9 : 0.0;
  if (s.zero_stage > 0) {
    json["zero"] = {{"stage", s.zero_stage}};
    if (s.compute == ComputeType::mixed) json["precision"] = {{"parameters", "bf16"}};
  }
  if (s.recompute) {
    const int layers = std::max(1, input.model.transformer.layers);
    json["activation_checkpointing"] = {{"number_checkpoints", layers}};
  }
  if (input.model.transformer.vocabulary > 0) add_model(json, input.model.transformer);
  if (s.local_steps > 1) {
    json.erase("parallel");  // There are no gradients to exchange.
    json["local_steps"] = {{"steps", s.local_steps},
                           {"fragments", s.fragments},
                           {"overlap_steps", s.overlap_steps},
                           {"codec", s.codec}};
  }
  if (s.pipeline > 1) make_pipeline_of(json, s, pipeline);
  return json.dump(2) + "\n";
}

}  // namespace gradwire::plan

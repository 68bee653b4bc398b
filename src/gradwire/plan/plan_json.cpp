#include <algorithm>

#include <nlohmann/json.hpp>

#include "gradwire/plan/plan.h"
#include "gradwire/plan/search.h"

namespace gradwire::plan {
namespace {

using Json = nlohmann::ordered_json;

Json strategy_json(const PlanInput& input) {
  const Strategy& s = input.strategy;
  return {{"nodes", s.nodes},
          {"devices_per_node", s.devices_per_node},
          {"batch", s.batch},
          {"global_batch", s.global_batch()},
          {"precision", name_of(s.compute)},
          {"optimizer", name_of(s.optimizer)},
          {"overlap", name_of(s.overlap)},
          {"codec", s.codec},
          {"accumulate", s.accumulate},
          {"zero_stage", s.zero_stage},
          {"local_steps", s.local_steps},
          {"fragments", s.fragments},
          {"overlap_steps", s.overlap_steps},
          {"algorithm", s.algorithm},
          {"servers", s.servers},
          {"place", s.beside_workers ? "workers" : "own"},
          {"tensor", s.tensor},
          {"pipeline", s.pipeline},
          {"micro_batches", s.micro_batches},
          {"schedule", s.schedule},
          {"recompute", s.recompute},
          {"nics", input.network.cards}};
}

Json phases_json(const PhaseTimes& p) {
  return {{"storage", 1e3 * p.storage},     {"forward", 1e3 * p.forward},
          {"backward", 1e3 * p.backward},   {"bubble", 1e3 * p.bubble},
          {"unequal", 1e3 * p.unequal},     {"inside", 1e3 * p.inside},
          {"bandwidth", 1e3 * p.bandwidth}, {"latency", 1e3 * p.latency},
          {"update", 1e3 * p.update}};
}

Json memory_json(const MemoryUse& m) {
  return {{"parameters", m.parameters}, {"gradients", m.gradients},
          {"optimizer", m.optimizer},   {"activations", m.activations},
          {"buffers", m.buffers},       {"activations_known", m.activations_known}};
}

/// Model states by ZeRO stage.
Json zero_json(const PlanInput& input) {
  const Strategy& s = input.strategy;
  Json stages = Json::array();
  const double parameters = static_cast<double>(input.model.parameters()) / (s.tensor * s.pipeline);
  for (int stage = 0; stage <= 3; ++stage) {
    stages.push_back(
        zero_states(parameters, bytes_per_parameter(s.compute, s.optimizer), stage, s.data()));
  }
  return stages;
}

Json advice_json(const std::vector<Advice>& all) {
  Json list = Json::array();
  for (const Advice& a : all) {
    list.push_back({{"change", a.change},
                    {"text", a.text},
                    {"eta", a.eta},
                    {"samples_per_second", a.samples_per_second},
                    {"fits", a.fits},
                    {"note", a.note}});
  }
  return list;
}

Json ways_json(const std::vector<Way>& all) {
  Json list = Json::array();
  for (const Way& way : all) {
    const Strategy& s = way.input.strategy;
    Json json = {{"name", way.name},
                 {"text", sentence_of(way)},
                 {"fits", way.fits},
                 {"step_ms", 1e3 * way.step},
                 {"memory_bytes", std::ranges::max(way.memory_by_stage)},
                 {"zero_stage", s.zero_stage}};
    json["why"] = reason_of(way);
    if (s.pipeline > 1) {
      const Json config = Json::parse(
          train_config(way.input, {.cut = way.cut, .costs = run_pipeline(*way.placed).costs}));
      json["memory_by_stage"] = way.memory_by_stage;
      json["mesh"] = config["mesh"];
      json["pipeline"] = config["pipeline"];
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json cost_json(const RunCost& c) {
  return {{"steps", c.steps},
          {"hours", c.hours},
          {"rent", c.rent},
          {"kwh", c.kwh},
          {"energy", c.energy}};
}

}  // namespace

std::string to_json(const Plan& plan) {
  const StepTime& t = plan.time;
  Json json = {{"model", plan.input.model.name},
               {"parameters", plan.input.model.parameters()},
               {"device", plan.input.device.name},
               {"network", plan.input.network.name},
               {"engine", plan.input.network.engine},
               {"eta", t.eta},
               {"t_s_ms", 1e3 * t.t_s},
               {"t_c_ms", 1e3 * t.t_c},
               {"hidden_ms", 1e3 * t.hidden},
               {"exposed_ms", 1e3 * t.exposed},
               {"step_ms", 1e3 * t.step},
               {"samples_per_second", t.samples_per_second},
               {"phases_ms", phases_json(t.phases)},
               {"algorithm", t.algorithm},
               {"wire_bytes", t.wire_bytes},
               {"bottleneck", name_of(t.bottleneck)},
               {"bottleneck_text", bottleneck_sentence(plan)},
               {"needed_gbps", 8e-9 * needed_network(plan.input)},
               {"memory_bytes", plan.memory.total()},
               {"memory", memory_json(plan.memory)},
               {"device_memory_bytes", plan.input.device.memory_bytes},
               {"fits", plan.fits},
               {"zero_state_bytes", zero_json(plan.input)},
               {"strategy", strategy_json(plan.input)},
               {"advice", advice_json(plan.advice)},
               {"ways", ways_json(plan.ways)}};
  if (plan.input.network.by_bus_bandwidth) {
    json["bus_bandwidth"] = plan.input.network.goodput();
    if (plan.input.network.latency == 0) json["phases_ms"].erase("latency");
  }
  if (!plan.fits) json["fewest_nodes"] = plan.min_nodes;
  if (plan.cost.steps > 0) json["cost"] = cost_json(plan.cost);
  return json.dump(2) + "\n";
}

}  // namespace gradwire::plan

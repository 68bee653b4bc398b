#include "gradwire/plan/predict/step_time.h"

#include <algorithm>
#include <array>

#include "gradwire/base/refuse.h"
#include "gradwire/plan/place/degrees.h"
#include "gradwire/plan/predict/exposed_time.h"
#include "gradwire/plan/predict/gradient_exchange.h"
#include "gradwire/schedule/cost/constants.h"

namespace gradwire::plan {
namespace {

/// Memory accesses per kept element, outside of matrix products. Forward writes it and reads it
/// again. Backward reads it, its gradient and the previous gradient, and writes the latter.
constexpr double kForwardTraffic = 2, kBackwardTraffic = 4;
using schedule::fitted::kMemoryShare;
/// Minimum share of a step that counts as a bottleneck.
constexpr double kWorthSaying = 0.1;

struct Pass {
  double forward = 0, backward = 0;
};

/// Splits a known time by the layers' shares.
Pass split(const ModelShape& model, double seconds) {
  double forward = 0;
  for (const ModelLayer& layer : model.layers) forward += layer.forward;
  return {forward * seconds, (1 - forward) * seconds};
}

/// One pass of one device: operations at its rate, plus activations through its memory.
Pass modelled_pass(const PlanInput& input) {
  const Strategy& s = input.strategy;
  const double replica = s.tensor * s.pipeline;
  const double operations =
      s.batch * input.model.forward_flops() / input.device.rate(s.compute) / replica;
  const double moved = s.batch * input.model.kept() * bytes_of(s.compute) / replica /
                       (kMemoryShare * input.device.memory_bytes_per_second);
  Pass pass{operations + kForwardTraffic * moved, 2 * operations + kBackwardTraffic * moved};
  if (s.recompute) pass.backward += pass.forward;
  return pass;
}

Pass pass_of(const PlanInput& input) {
  if (input.measured.step > 0) return split(input.model, input.measured.step);
  if (!input.model.recorded()) return modelled_pass(input);
  if (input.model.recorded_seconds > 0) return split(input.model, input.model.recorded_seconds);
  refuse(
      "{}: this profile has only shares of time; give the time of a step on "
      "one device with --step-ms",
      input.model.name);
}

/// Time to read and write all data of the optimizer, for the parameters that this device owns.
double update_time(const PlanInput& input) {
  if (input.measured.step > 0) return 0;  // The measured step includes it.
  const Strategy& s = input.strategy;
  const BytesPerParameter bytes = bytes_per_parameter(s.compute, s.optimizer);
  const double owned = static_cast<double>(input.model.parameters()) / (s.tensor * s.pipeline) /
                       (s.zero_stage > 0 ? s.data() : 1);
  return owned * (2 * (bytes.parameter + bytes.optimizer) + bytes.gradient) /
         (kMemoryShare * input.device.memory_bytes_per_second);
}

/// Time of one pass: devices that share layers all-reduce activations, twice in forward and twice
/// in backward per block (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3).
double tensor_time(const PlanInput& input) {
  const Strategy& s = input.strategy;
  const TransformerShape& shape = input.model.transformer;
  if (s.tensor < 2) return 0;
  const bool inside = s.tensor <= s.devices_per_node;
  const double rate = inside ? input.device.inside_bytes_per_second : input.network.goodput();
  const double bytes =
      s.batch * shape.tokens * static_cast<double>(shape.width) * bytes_of(s.compute);
  return 4.0 * shape.layers / s.pipeline * 2 * (s.tensor - 1) / s.tensor * bytes / rate;
}

/// One pass through a pipeline. A replica's devices that share layers wait for each other in every
/// micro-batch, as long in forward as in backward.
PipelineTime pipeline_time(const PlanInput& input) {
  const Strategy& s = input.strategy;
  if (s.pipeline < 2) return {};
  const Pass pass = pass_of(input);
  const double sharing = tensor_time(input) / 2;
  const double repeated = s.recompute ? pass.forward : 0;
  const double weight = (pass.backward - repeated) / 2;
  const auto& layers = input.model.layers;
  const double samples = s.batch / s.micro_batches;
  const double bytes = layers[layers.size() / 2].outputs * samples * bytes_of(s.compute) / s.tensor;
  return input.pipelines->of(
      {.schedule = s.schedule,
       .ranks = s.pipeline,
       .micro_batches = s.micro_batches,
       .rank = {(pass.forward + sharing) / s.micro_batches,
                (repeated + weight + sharing) / s.micro_batches, weight / s.micro_batches},
       .transfer = bytes / input.network.goodput(),
       .latency = input.network.latency});
}

PhaseTimes compute_phases(const PlanInput& input) {
  const Strategy& s = input.strategy;
  const Pass pass = pass_of(input);
  const PipelineTime pipeline = pipeline_time(input);
  const double passes = s.accumulate;
  return {.forward = passes * pass.forward,
          .backward = passes * pass.backward,
          .bubble = passes * pipeline.bubble,
          .inside = passes * (tensor_time(input) + pipeline.transfers),
          .update = update_time(input)};
}

double storage_time(const PlanInput& input) {
  const Strategy& s = input.strategy;
  if (input.storage_bytes_per_second <= 0) return 0;
  const double samples = s.global_batch() / s.nodes;
  return samples * input.model.sample_bytes / input.storage_bytes_per_second;
}

/// Returns the exposed communication of a step.
double exposed(const PlanInput& input, const PhaseTimes& phases, const GradientExchange& exchange) {
  const Strategy& s = input.strategy;
  const double all = exchange.bandwidth + exchange.latency;
  const double compute = phases.forward + phases.backward;
  // Independent of s.overlap: averages hide behind their overlap steps.
  if (s.local_steps > 1) return std::max(0.0, all - step::hiding_share(s.local()) * compute);
  if (all <= 0 || s.overlap == step::Overlap::none) return all;
  return exposed_time(input.model, {.policy = {.stage = s.zero_stage, .overlap = s.overlap},
                                    .accumulate = s.accumulate,
                                    .forward = phases.forward / s.accumulate,
                                    .backward = phases.backward / s.accumulate,
                                    .reduce = exchange.reduce,
                                    .gather = exchange.gather});
}

PlanBottleneck bottleneck_of(const StepTime& time) {
  const PhaseTimes& p = time.phases;
  const double lost = time.t_c > 0 ? time.exposed / time.t_c : 0;
  const std::array<std::pair<double, PlanBottleneck>, 5> losses{
      {{p.bandwidth * lost, PlanBottleneck::bandwidth},
       {p.latency * lost, PlanBottleneck::latency},
       {time.waiting_for_data, PlanBottleneck::storage},
       {p.update, PlanBottleneck::update},
       {p.bubble + p.unequal + p.inside, PlanBottleneck::pipeline}}};
  const auto largest = std::ranges::max_element(losses);
  return largest->first >= kWorthSaying * time.step ? largest->second : PlanBottleneck::compute;
}

}  // namespace

std::string_view name_of(PlanBottleneck bottleneck) {
  constexpr std::array<std::string_view, 6> kNames{"compute", "bandwidth", "latency",
                                                   "storage", "update",    "pipeline"};
  return kNames[static_cast<std::size_t>(bottleneck)];
}

StepTime step_time(const PlanInput& input) {
  const Strategy& s = input.strategy;
  if (s.pipeline < 2) return step_time_of_equal_stages(input);
  const auto placed = place_stages(input, s.tensor, s.pipeline, s.micro_batches);
  return placed ? placed->time : step_time_of_equal_stages(input);
}

StepTime step_time_of_equal_stages(const PlanInput& input) {
  return step_time_with(input, compute_phases(input));
}

StepTime step_time_with(const PlanInput& input, const PhaseTimes& computing) {
  const GradientExchange exchange = gradient_exchange(input);
  StepTime time{.phases = computing};
  PhaseTimes& p = time.phases;
  p.bandwidth = exchange.bandwidth;
  p.latency = exchange.latency;
  p.storage = storage_time(input);
  time.t_s = p.forward + p.backward + p.update;
  const double busy = time.t_s + p.bubble + p.unequal + p.inside;
  time.t_c = p.bandwidth + p.latency;
  time.exposed = exposed(input, p, exchange);
  time.hidden = time.t_c - time.exposed;
  time.waiting_for_data = std::max(0.0, p.storage - busy - time.exposed);
  time.step = busy + time.exposed + time.waiting_for_data;
  time.eta = time.t_s / time.step;
  time.samples_per_second = input.strategy.global_batch() / time.step;
  time.algorithm = exchange.algorithm;
  time.wire_bytes = exchange.wire_bytes;
  time.bottleneck = bottleneck_of(time);
  return time;
}

MemoryUse memory_use(const PlanInput& input) {
  return memory_use(input.model, input.strategy, pipeline_time(input).kept);
}

bool fits(const PlanInput& input) {
  return memory_use(input).total() <= input.device.memory_bytes;
}

double needed_network(const PlanInput& input, bool many) {
  const StepTime time = step_time(input);
  const int nodes = input.strategy.nodes;
  if (nodes < 2) return 0;
  const double bytes = many ? time.wire_bytes * nodes / (nodes - 1) : time.wire_bytes;
  return bytes / time.t_s;
}

}  // namespace gradwire::plan

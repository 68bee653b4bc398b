#include "gradwire/plan/strategy.h"

#include <array>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/plan/names.h"
#include "gradwire/plan/simulate/operation_times.h"

namespace gradwire::plan {
namespace {

/// Values of a long tensor, whose encoded size per value is that of all long ones.
constexpr std::size_t kManyValues = std::size_t{1} << 22;

double bytes_each(const codec::Codec& codec) {
  return static_cast<double>(codec.encoded_bytes(kManyValues)) / kManyValues;
}

void refuse_unless(bool right, const std::string& what) {
  if (!right) refuse(what);
}

struct Bound {
  std::string_view text;  ///< Format string for the value.
  int Strategy::*member;
  int low, high;
};
constexpr std::array<Bound, 9> kBounds{
    {{"{} nodes", &Strategy::nodes, 1, kMaxNodes},
     {"{} devices per node", &Strategy::devices_per_node, 1, 64},
     {"{} accumulated passes", &Strategy::accumulate, 1, 1 << 16},
     {"ZeRO stage {}", &Strategy::zero_stage, 0, 3},
     {"{} local steps", &Strategy::local_steps, 1, 1 << 16},
     {"{} parameter servers", &Strategy::servers, 0, kMaxNodes},
     {"tensor-parallel degree {}", &Strategy::tensor, 1, 1 << 12},
     {"{} pipeline stages", &Strategy::pipeline, 1, 1 << 12},
     {"{} micro-batches", &Strategy::micro_batches, 1, 1 << 16}}};

void check_together(const Strategy& s) {
  refuse_unless(
      s.devices() % (s.tensor * s.pipeline) == 0,
      fmt::format("{} nodes of {} devices do not divide into replicas of {} devices "
                  "(tensor {} x pipeline {})",
                  s.nodes, s.devices_per_node, s.tensor * s.pipeline, s.tensor, s.pipeline));
  refuse_unless(s.servers == 0 || (s.zero_stage == 0 && s.tensor * s.pipeline == 1),
                "parameter servers require plain data parallelism: ZeRO stage 0, tensor 1, "
                "pipeline 1");
  refuse_unless(!s.beside_workers || s.servers <= s.nodes,
                fmt::format("{} parameter servers beside the workers of {} nodes: at most one on "
                            "each",
                            s.servers, s.nodes));
  refuse_unless(s.zero_stage == 0 || s.codec == "none" || s.compute != ComputeType::mixed,
                fmt::format("ZeRO stage {} with codec {} requires fp32 gradients, which precision "
                            "mixed does not have; use codec none, or precision fp32 or bf16",
                            s.zero_stage, s.codec));
  refuse_unless(s.zero_stage == 0 || s.local_steps == 1,
                "ZeRO averages in every step: use local steps 1, or ZeRO stage 0");
}

}  // namespace

std::string_view name_of(OptimizerKind optimizer) {
  constexpr std::array<std::string_view, 3> kNames{"sgd", "momentum", "adam"};
  return kNames[static_cast<std::size_t>(optimizer)];
}

void check_strategy(const Strategy& strategy) {
  for (const Bound& bound : kBounds) {
    const int value = strategy.*(bound.member);
    refuse_unless(value >= bound.low && value <= bound.high,
                  fmt::format("{}: expected {} to {}", fmt::format(fmt::runtime(bound.text), value),
                              bound.low, bound.high));
  }
  refuse_unless(strategy.batch > 0 && std::isfinite(strategy.batch),
                fmt::format("a batch of {}: expected more than 0 samples", strategy.batch));
  wire_bytes(strategy.codec, 2);
  step::check_local_steps(strategy.local());
  const auto algorithms = planned_algorithms();
  if (std::ranges::find(algorithms, strategy.algorithm) == algorithms.end())
    refuse_name("algorithm", strategy.algorithm, algorithms);
  if (strategy.pipeline > 1) {
    const pipeline::PipelineOptions small{.ranks = 2, .micro_batches = 2};
    refuse_unless(
        value_or_throw(pipeline::make_pipeline(strategy.schedule, small)).trains,
        fmt::format("schedule {} does not train: use 1f1b, zero_bubble, ...", strategy.schedule));
  }
  check_together(strategy);
}

WireBytes wire_bytes(const std::string& codec, int ranks) {
  const codec::CodecSpec spec = value_or_throw(codec::parse_codec(codec));
  if (spec.kind() == codec::CodecKind::none) return {};
  if (spec.kind() != codec::CodecKind::codec) {
    refuse(
        "codec \"{}\": its encoded size depends on more than the number of "
        "values; plan with none, bf16, int8, int4 or top_k:0.01",
        codec);
  }
  const std::unique_ptr<codec::Codec> made = value_or_throw(codec::make_codec(spec));
  const std::unique_ptr<codec::Codec> mean = made->for_mean(ranks);
  return {.contribution = bytes_each(*made),
          .mean = bytes_each(mean ? *mean : *made),
          .feedback = made->wants_feedback(),
          .coded = true};
}

}  // namespace gradwire::plan

#include <fmt/format.h>

#include "gradwire/base/units.h"
#include "gradwire/plan/plan.h"

namespace gradwire::plan {
namespace {

std::string ms(double seconds) {
  return fmt::format("{:.4g} ms", 1e3 * seconds);
}

std::string gigabytes(double bytes) {
  return fmt::format("{:.4g} GB", bytes / 1e9);
}

Explained model(const PlanInput& in) {
  return {"model",
          fmt::format("{} parameters, {:.4g} GFLOP forward a {}", in.model.parameters(),
                      in.model.forward_flops() / 1e9, in.model.sample),
          "the layers' parameters; 2 operations for each multiplication and addition of their "
          "matrix products and convolutions",
          in.model.recorded() ? "a recorded profile" : "the paper's tables (docs/plan.md)"};
}

Explained device(const PlanInput& in) {
  const Device& d = in.device;
  return {"device",
          fmt::format("{:.4g} TFLOP/s of a peak of {:.4g}, memory {} at {:.4g} GB/s",
                      d.rate(in.strategy.compute) / 1e12, d.peak(in.strategy.compute) / 1e12,
                      gigabytes(d.memory_bytes), d.memory_bytes_per_second / 1e9),
          fmt::format("{:.0f} % of the peak in matrix products", 100 * d.utilization), d.source};
}

Explained network(const PlanInput& in) {
  const Network& n = in.network;
  if (n.by_bus_bandwidth) {
    const std::string hop = n.latency > 0 ? fmt::format("{:.3g} us a hop", 1e6 * n.latency)
                                          : "latency neither given nor measured";
    return {"network", fmt::format("{} bus bandwidth, {}", format_rate(n.goodput()), hop),
            fmt::format("of {}'s collectives, as nccl-tests defines it", n.engine), n.source};
  }
  return {
      "network",
      fmt::format("{} a node, {:.3g} us a hop", format_rate(n.goodput()),
                  1e6 * (n.latency + n.per_message)),
      fmt::format("{} x {:.4g} of it goodput x (1 + {:.2f} x {} further cards)",
                  format_rate(n.bytes_per_second), n.goodput_share, n.further_card, n.cards - 1),
      n.source};
}

Explained compute(const Plan& plan) {
  const PlanInput& in = plan.input;
  const StepTime& t = plan.time;
  Explained e{"T_s", ms(t.t_s), {}, {}};
  if (in.measured.step > 0) {
    e.how = fmt::format("{} passes x {}, the update included", in.strategy.accumulate,
                        ms(in.measured.step));
    e.source = "measured: --step-ms; forward and backward by the layers' shares";
  } else if (in.model.recorded()) {
    e.how = fmt::format("{} passes x {} + update {}", in.strategy.accumulate,
                        ms(in.model.recorded_seconds), ms(t.phases.update));
    e.source = "recorded in the profile";
  } else {
    e.how = fmt::format(
        "{} passes x (3 x {:.4g} GFLOP x batch {:g} / rate + 6 times each kept "
        "activation through memory at 80 %) + update {}",
        in.strategy.accumulate, in.model.forward_flops() / 1e9, in.strategy.batch,
        ms(t.phases.update));
    e.source =
        "modeled: src/gradwire/plan/predict/step_time.cpp; give --step-ms for a measured one";
  }
  return e;
}

Explained bandwidth(const Plan& plan) {
  const PlanInput& in = plan.input;
  const WireBytes wire = wire_bytes(in.strategy.codec, in.strategy.nodes);
  // With ZeRO, parameters return unencoded.
  const double back = in.strategy.zero_stage > 0 ? 4 : wire.mean;
  Explained e{"T_c, bandwidth", ms(plan.time.phases.bandwidth), {}, {}};
  e.how = fmt::format("{} sent by each node in a step, by {}", gigabytes(plan.time.wire_bytes),
                      plan.time.algorithm);
  if (wire.coded)
    e.how += fmt::format("; codec {}: {:.3g} + {:.3g} bytes a value", in.strategy.codec,
                         wire.contribution, back);
  e.source = "src/gradwire/plan/predict/collective_time.h";
  if (in.measured.communication > 0) {
    e.source = fmt::format(
        "measured: --comm-ms {:.4g} of fp32 by {} nodes over one card, scaled by bytes and cards",
        1e3 * in.measured.communication, in.measured.nodes);
  }
  return e;
}

Explained latency(const Plan& plan) {
  Explained e{"T_c, latency", ms(plan.time.phases.latency),
              fmt::format("the rest of {}: hops of {:.3g} us that no other segment hides",
                          plan.time.algorithm,
                          1e6 * (plan.input.network.latency + plan.input.network.per_message)),
              "src/gradwire/plan/predict/collective_time.h"};
  if (plan.input.network.by_bus_bandwidth)
    e.how = fmt::format("hops of {:.3g} us, 2 log2 P of them in an all-reduce among P nodes",
                        1e6 * plan.input.network.latency);
  if (plan.input.measured.communication > 0)
    e.source = "hops beyond those that --comm-ms already has";
  return e;
}

Explained overlap(const Plan& plan) {
  return {"exposed", ms(plan.time.exposed),
          fmt::format(
              "overlap {}: T_c less what backward{} hides, layer by layer",
              name_of(plan.input.strategy.overlap),
              plan.input.strategy.overlap == step::Overlap::full ? " and the next forward" : ""),
          "src/gradwire/plan/predict/exposed_time.h"};
}

Explained efficiency(const Plan& plan) {
  const StepTime& t = plan.time;
  return {"eta", fmt::format("{:.1f} %", 100 * t.eta),
          fmt::format("T_s / step = {} / {}", ms(t.t_s), ms(t.step)),
          "docs/vocabulary.md: the share of time in which P ranks do the work of P"};
}

Explained memory(const Plan& plan) {
  const Strategy& s = plan.input.strategy;
  const BytesPerParameter b = bytes_per_parameter(s.compute, s.optimizer);
  return {
      "memory", gigabytes(plan.memory.total()),
      fmt::format("{:g} + {:g} + {:g} bytes a parameter (precision {}, {}), ZeRO stage {} among "
                  "{} replicas; activations of a batch of {:g}{}",
                  b.parameter, b.gradient, b.optimizer, name_of(s.compute), name_of(s.optimizer),
                  s.zero_stage, s.data(), s.batch, s.recompute ? ", recomputed" : ""),
      "arXiv:1910.02054 (states), arXiv:2205.05198 (activations of transformers)"};
}

}  // namespace

std::vector<Explained> explain(const Plan& plan) {
  std::vector<Explained> all{model(plan.input), device(plan.input), network(plan.input),
                             compute(plan)};
  if (plan.time.t_c > 0) {
    all.push_back(bandwidth(plan));
    const bool unknown = plan.input.network.by_bus_bandwidth && plan.time.phases.latency == 0;
    if (!unknown) all.push_back(latency(plan));
    all.push_back(overlap(plan));
  }
  all.push_back(efficiency(plan));
  all.push_back(memory(plan));
  return all;
}

std::string to_text(const std::vector<Explained>& all) {
  std::string text = "\nWhere the numbers come from\n";
  for (const Explained& e : all)
    text += fmt::format("  {}: {}\n      = {}\n      {}\n", e.what, e.value, e.how, e.source);
  return text;
}

}  // namespace gradwire::plan

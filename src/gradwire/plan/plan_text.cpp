#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/plan.h"

namespace gradwire::plan {
namespace {

constexpr std::size_t kMaxAdvice = 12;

/// Formats gigabytes: "120", "31.4", "1.9"; below 1 with three digits.
std::string gigabytes(double bytes) {
  const double giga = bytes / 1e9;
  return giga < 1 ? fmt::format("{:.3g}", giga) : fmt::format("{:g}", std::round(10 * giga) / 10);
}

std::string row(const char* name, double seconds, double step, const std::string& what) {
  if (seconds <= 0) return {};
  return fmt::format("  {:<34}{:>10} {:>6.1f} %  {}\n", name, format_duration(duration_of(seconds)),
                     100 * seconds / step, what);
}

std::string header(const PlanInput& input) {
  const Strategy& s = input.strategy;
  std::string text = fmt::format("{}, {} parameters, on {} node{}", input.model.name,
                                 format_count(static_cast<double>(input.model.parameters())),
                                 s.nodes, s.nodes == 1 ? "" : "s");
  text += fmt::format(" of {} x {}, {}{} {}\n", s.devices_per_node, input.device.title,
                      input.network.cards > 1 ? fmt::format("{} x ", input.network.cards) : "",
                      input.network.name,
                      fmt::format("({} {})", format_rate(input.network.goodput()),
                                  input.network.by_bus_bandwidth ? "bus bandwidth" : "a node"));
  text += fmt::format(
      "batch {:g} a pass, {:g} a step over all; {}, {}, overlap {}, codec {}, ZeRO stage {}\n",
      s.batch, s.global_batch(), name_of(s.compute), name_of(s.optimizer), name_of(s.overlap),
      s.codec, s.zero_stage);
  if (s.tensor * s.pipeline > 1)
    text += fmt::format("tensor {} x pipeline {} ({}, {} micro-batches) x data {}\n", s.tensor,
                        s.pipeline, s.schedule, s.micro_batches, s.data());
  if (s.servers > 0)
    text += fmt::format("{} parameter servers{}\n", s.servers,
                        s.beside_workers ? " beside workers" : "");
  if (s.local_steps > 1) {
    text += fmt::format("{} local steps, fragments {}, overlap steps {}\n", s.local_steps,
                        s.fragments, s.overlap_steps);
  }
  return text + "\n";
}

std::string phases(const StepTime& t) {
  const PhaseTimes& p = t.phases;
  std::string text = "A step, by phase (each as if it were alone)\n";
  text += row("0 storage to node", p.storage, t.step, "");
  text += row("1 forward", p.forward, t.step, "");
  text += row("2 backward", p.backward, t.step, "");
  text += row("  pipeline's bubble", p.bubble, t.step, "");
  text += row("  unequal stages", p.unequal, t.step, "");
  text += row("  activations between devices", p.inside, t.step, "");
  text += row("3 averaging gradients, bandwidth", p.bandwidth, t.step, t.algorithm);
  text += row("3 averaging gradients, latency", p.latency, t.step, "");
  text += row("4 update", p.update, t.step, "");
  text += fmt::format("  step {} = T_s {} + exposed {}", format_duration(duration_of(t.step)),
                      format_duration(duration_of(t.t_s)), format_duration(duration_of(t.exposed)));
  const double other = t.step - t.t_s - t.exposed;
  if (other > 1e-9) text += fmt::format(" + other waiting {}", format_duration(duration_of(other)));
  text += fmt::format("; T_c {}, hidden {}\n", format_duration(duration_of(t.t_c)),
                      format_duration(duration_of(t.hidden)));
  return text + fmt::format("\nefficiency {:.1f} %, {:.4g} samples/s\n", 100 * t.eta,
                            t.samples_per_second);
}

std::string stages(const Plan& plan) {
  const Strategy& s = plan.input.strategy;
  if (s.data() < 2) return {};
  const auto bytes = bytes_per_parameter(s.compute, s.optimizer);
  const double parameters =
      static_cast<double>(plan.input.model.parameters()) / (s.tensor * s.pipeline);
  std::string text = "Parameters, gradients and optimizer with ZeRO's stages:";
  for (int stage = 0; stage <= 3; ++stage) {
    text += fmt::format("{} {}: {} GB", stage == 0 ? "" : ",", stage,
                        gigabytes(zero_states(parameters, bytes, stage, s.data())));
  }
  return text + "\n";
}

std::string advice(const Plan& plan) {
  if (plan.advice.empty()) return {};
  std::string text = plan.fits ? "\nWhat would help\n" : "\nWhat would make it fit\n";
  for (std::size_t i = 0; i < std::min(kMaxAdvice, plan.advice.size()); ++i) {
    const Advice& a = plan.advice[i];
    text += fmt::format("  {}{}\n", a.text, a.note.empty() ? "" : "  (" + a.note + ")");
  }
  return text;
}

std::string ways(const Plan& plan) {
  if (plan.ways.empty()) return {};
  std::string text = "\nPipeline, ZeRO or data parallelism, the best first\n";
  for (const Way& way : plan.ways) {
    text += fmt::format("  {}\n", sentence_of(way));
    if (way.fits && !way.others.empty()) text += fmt::format("    {}\n", reason_of(way));
  }
  return text;
}

std::string cost(const RunCost& c) {
  if (c.steps <= 0) return {};
  std::string text = fmt::format("\nThe run: {:.0f} steps, {:.3g} hours", c.steps, c.hours);
  if (c.rent > 0) text += fmt::format(", rent {:.2f}", c.rent);
  if (c.kwh > 0) text += fmt::format(", {:.3g} kWh", c.kwh);
  if (c.energy > 0) text += fmt::format(" for {:.2f}", c.energy);
  return text + "\n";
}

}  // namespace

std::string to_text(const Plan& plan) {
  return header(plan.input) + phases(plan.time) + "Bottleneck: " + bottleneck_sentence(plan) +
         "\nMemory: " + memory_sentence(plan) + (plan.fits ? ".\n" : ": it does not fit.\n") +
         stages(plan) + (plan.fits ? "" : min_nodes_sentence(plan) + "\n") + advice(plan) +
         ways(plan) + cost(plan.cost);
}

}  // namespace gradwire::plan

#include "gradwire/emulation/served_units.h"

#include <span>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/emulation/emulated_values.h"

namespace gradwire::emulation {

WorkerUnits::WorkerUnits(const step::StepPlan& plan, int servers, bool in_step, std::uint64_t seed)
    : servers_(static_cast<std::size_t>(servers)), in_step_(in_step) {
  DrawnGradients drawn(seed);
  for (const exchange::UnitShape& shape : plan.buckets) {
    units_.push_back({.gradients = std::vector<float>(shape.count),
                      .parameters = std::vector<float>(shape.count),
                      .seen = std::vector<float>(servers_)});
    drawn.fill(units_.back().gradients);
  }
}

step::StepHost::Gradients WorkerUnits::gradients(std::size_t unit) {
  return {lend(units_[unit].gradients), {}};
}

step::StepHost::Parameters WorkerUnits::parameters(std::size_t unit) {
  return {{}, lend(units_[unit].parameters)};
}

void WorkerUnits::use_parameters(std::size_t index, std::size_t layer, std::int64_t steps) {
  Unit& unit = units_[index];
  const std::size_t count = unit.parameters.size() / servers_;
  for (std::size_t server = 0; server < servers_; ++server) {
    const auto part = std::span(unit.parameters).subspan(server * count, count);
    float& seen = unit.seen[server];
    const bool is_right = in_step_ ? part.front() == marker_of(steps) : part.front() >= seen;
    if (!is_right || part.front() != part.back()) {
      throw Exception(ErrorKind::mismatch,
                      fmt::format("layer {} uses unit {} in step {}, but server {}'s part has "
                                  "versions {} and {} at its ends, after {}",
                                  layer, index, steps, server, part.front(), part.back(), seen));
    }
    seen = part.front();
  }
}

EmulatedMemory WorkerUnits::peak_memory() const {
  EmulatedMemory memory;
  for (const Unit& unit : units_) {
    memory.gradients += unit.gradients.size() * sizeof(float);
    memory.parameters += unit.parameters.size() * sizeof(float);
  }
  return memory;
}

ShardsInMemory::ShardsInMemory(const step::StepPlan& plan, int servers) {
  for (const exchange::UnitShape& shape : plan.buckets) {
    parts_.push_back({std::vector<float>(shape.count / static_cast<std::size_t>(servers)), 0});
  }
}

LentSpan ShardsInMemory::values(std::size_t unit) {
  return lend(parts_[unit].values);
}

void ShardsInMemory::step(std::size_t unit, const LentSpan& gradient, double /*rate*/) {
  read_ += read_all({static_cast<const float*>(gradient.data), gradient.count});
  Part& part = parts_[unit];
  mark(part.values, marker_of(++part.updates));
}

}  // namespace gradwire::emulation

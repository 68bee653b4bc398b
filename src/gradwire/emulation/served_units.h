#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/emulation/emulated_units.h"
#include "gradwire/servers/server.h"
#include "gradwire/step/step_plan.h"

namespace gradwire::emulation {

/// A worker's units where the parameters are on servers: gradients with random values, and memory
/// for the parameters. Each layer checks that the parts of the units that it uses are whole and not
/// older than before.
class WorkerUnits final : public EmulatedUnits {
 public:
  /// `in_step`: the parameters of step n have n updates (mode sync); otherwise any number.
  WorkerUnits(const step::StepPlan& plan, int servers, bool in_step, std::uint64_t seed);

  Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t /*unit*/) override {}
  bool step(std::size_t /*unit*/) override { return true; }
  Parameters parameters(std::size_t unit) override;
  void use_parameters(std::size_t unit, std::size_t layer, std::int64_t steps) override;
  EmulatedMemory peak_memory() const override;

 private:
  struct Unit {
    std::vector<float> gradients, parameters;
    std::vector<float> seen;  ///< By server: the number of updates of its part.
  };

  std::size_t servers_;
  bool in_step_;
  std::vector<Unit> units_;
};

/// A server's parts of emulated units. The optimizer is emulated by reading every cache line of the
/// gradient; it writes the number of updates to both ends of the part.
class ShardsInMemory final : public servers::ServedShards {
 public:
  ShardsInMemory(const step::StepPlan& plan, int servers);

  std::size_t units() const override { return parts_.size(); }
  LentSpan values(std::size_t unit) override;
  void step(std::size_t unit, const LentSpan& gradient, double rate) override;

 private:
  struct Part {
    std::vector<float> values;
    std::int64_t updates = 0;
  };

  std::vector<Part> parts_;
  float read_ = 0;  ///< Depends on all gradients.
};

}  // namespace gradwire::emulation

#pragma once

#include <cstddef>

#include "gradwire/host/unit_memory.h"
#include "gradwire/host/unit_optimizer.h"
#include "gradwire/step/step_host.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// Units as the step engine sees them: their memory, and the optimizer that steps them.
class UnitSteps final : public step::StepHost {
 public:
  /// All must outlive this; `optimizer` and `trace` may be null.
  UnitSteps(UnitMemory& memory, UnitOptimizer* optimizer, TraceRecorder* trace)
      : memory_(memory), optimizer_(optimizer), trace_(trace) {}

  /// Sets the factor on the gradients of the next step.
  void set_factor(double factor) { factor_ = factor; }

  Gradients gradients(std::size_t unit) override { return memory_.gradients(unit); }
  void reduced(std::size_t unit) override { memory_.reduced(unit); }
  bool step(std::size_t unit) override {
    const TraceScope scope(trace_, TraceKind::optimizer);
    return optimizer_->step(unit, factor_);
  }
  Parameters parameters(std::size_t unit) override { return memory_.whole_parameters(unit); }
  void available(std::size_t unit) override { memory_.available(unit); }
  void release(std::size_t unit) override { memory_.release(unit); }

 private:
  UnitMemory& memory_;
  UnitOptimizer* optimizer_;
  TraceRecorder* trace_;
  double factor_ = 1;
};

}  // namespace gradwire

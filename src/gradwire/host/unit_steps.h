#pragma once

#include <cstddef>

#include "gradwire/host/group.h"
#include "gradwire/host/unit_memory.h"
#include "gradwire/host/unit_optimizer.h"
#include "gradwire/step/step_host.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// Units as the step engine sees them: their memory, and the optimizer that steps them.
class UnitSteps final : public step::StepHost {
 public:
  /// All must outlive this; `optimizer` and `trace` may be null.
  UnitSteps(c10d::ProcessGroup& group, UnitMemory& memory, UnitOptimizer* optimizer,
            TraceRecorder* trace)
      : group_(group), memory_(memory), optimizer_(optimizer), trace_(trace) {}

  /// Sets the factor on the gradients of the next step.
  void set_factor(double factor) { factor_ = factor; }

  Gradients gradients(std::size_t unit) override { return memory_.gradients(unit); }
  void reduced(std::size_t unit) override { memory_.reduced(unit); }
  /// If the optimizer fails, no rank goes on: the parameters would differ.
  bool step(std::size_t unit) override {
    const TraceScope scope(trace_, TraceKind::optimizer);
    bool stepped = false;
    run_or_abort(group_, [&] { stepped = optimizer_->step(unit, factor_); });
    return stepped;
  }
  Parameters parameters(std::size_t unit) override { return memory_.whole_parameters(unit); }
  void available(std::size_t unit) override { memory_.available(unit); }
  void release(std::size_t unit) override { memory_.release(unit); }

 private:
  c10d::ProcessGroup& group_;
  UnitMemory& memory_;
  UnitOptimizer* optimizer_;
  TraceRecorder* trace_;
  double factor_ = 1;
};

}  // namespace gradwire

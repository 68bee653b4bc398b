#pragma once

#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/unit_optimizer.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

/// An optimizer of libtorch for each unit.
class TorchUnitOptimizer : public UnitOptimizer {
 public:
  /// Calls `before`, unless it is null, before each unit's optimizer steps. Call when no step is
  /// pending.
  void set_before(BeforeStep before) { before_ = std::move(before); }

  virtual std::vector<torch::optim::Optimizer*> optimizers() = 0;

 protected:
  const BeforeStep& before() const { return before_; }

 private:
  BeforeStep before_;
};

}  // namespace gradwire

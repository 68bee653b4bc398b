#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/buckets.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/optim/torch_unit_optimizer.h"

namespace gradwire {

/// One of the factory's optimizers for each bucket.
class BucketOptimizers final : public TorchUnitOptimizer {
 public:
  /// `buckets` must outlive this.
  BucketOptimizers(const Buckets& buckets, const OptimizerFactory& factory);

  bool step(std::size_t unit, double factor) override;
  std::vector<torch::optim::Optimizer*> optimizers() override;

 private:
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

}  // namespace gradwire

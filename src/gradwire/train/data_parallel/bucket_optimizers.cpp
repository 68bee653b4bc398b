#include "gradwire/train/data_parallel/bucket_optimizers.h"

#include "gradwire/memory/memory_tracker.h"

namespace gradwire {

BucketOptimizers::BucketOptimizers(const Buckets& buckets, const OptimizerFactory& factory) {
  for (std::size_t unit = 0; unit < buckets.layout().members.size(); ++unit) {
    optimizers_.push_back(factory(buckets.members(unit)));
  }
}

bool BucketOptimizers::step(std::size_t unit, double factor) {
  const KeptMemoryScope memory(MemoryCategory::optimizer);
  auto& optimizer = *optimizers_[unit];
  if (factor != 1) {
    const torch::NoGradGuard no_grad;
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
      }
    }
  }
  if (before()) before()(optimizer);
  optimizer.step();
  optimizer.zero_grad();
  return true;
}

std::vector<torch::optim::Optimizer*> BucketOptimizers::optimizers() {
  std::vector<torch::optim::Optimizer*> all;
  for (const auto& each : optimizers_) all.push_back(each.get());
  return all;
}

}  // namespace gradwire

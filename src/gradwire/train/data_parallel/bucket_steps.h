#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/activation/await_parameters.h"
#include "gradwire/train/data_parallel/gradient_reducer.h"

namespace gradwire {

/// Makes the optimizer of some of the parameters; called once for each bucket. The optimizer must
/// treat each parameter independently (SGD, Adam, LAMB, ...: no norm over all gradients).
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> parameters)>;

/// Called before each bucket's optimizer steps, to set its learning rate.
using BeforeStep = std::function<void(torch::optim::Optimizer&)>;

/// Steps the parameters of each bucket separately, when they are needed. While a bucket is awaited,
/// it steps other buckets whose gradients have arrived. Not thread-safe.
class BucketSteps final : public BlockObserver {
 public:
  /// `reducer` may be null (world size 1): all `parameters` then form one bucket, always ready.
  /// Without a factory, buckets are settled but not stepped.
  BucketSteps(GradientReducer* reducer, const std::vector<NamedTensor>& parameters,
              const OptimizerFactory& factory, TraceRecorder* trace = nullptr);

  /// Starts one step of the optimizers, after which the gradients are cleared. Runs immediately if
  /// no gradient is in flight, otherwise in await() and finish().
  void begin(BeforeStep before);

  /// Settles and steps the buckets of the module's parameters that are pending.
  void await(const torch::nn::Module& module);
  void before_block(const torch::nn::Module& block) override { await(block); }
  void after_block(const torch::nn::Module&, const std::vector<torch::Tensor>&) override {}
  /// Does the same for all parameters.
  void finish();

  bool pending() const { return stepping_ || (reducer_ != nullptr && reducer_->in_flight()); }
  /// Returns true if this parameter is not stepped yet.
  bool pending(const torch::Tensor& parameter) const;

  /// One per bucket; empty without a factory.
  const std::vector<std::unique_ptr<torch::optim::Optimizer>>& optimizers() const {
    return optimizers_;
  }

 private:
  void await(std::size_t bucket);
  void complete(std::size_t bucket);
  bool complete_any_arrived();

  GradientReducer* reducer_;
  TraceRecorder* trace_;
  std::unordered_map<const void*, std::size_t> bucket_of_;  ///< By TensorImpl.
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  BeforeStep before_;
  bool stepping_ = false;
  std::vector<bool> done_;  ///< Per bucket, while stepping_.
  std::size_t remaining_ = 0;
};

}  // namespace gradwire

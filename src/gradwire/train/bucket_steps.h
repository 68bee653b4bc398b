#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/await_parameters.h"
#include "gradwire/train/gradient_reducer.h"

namespace gradwire {

/// Makes the optimiser of some of the parameters; called once for each bucket. What it makes must
/// treat each parameter by itself (SGD, Adam, LAMB, ...: not a norm over all gradients).
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> parameters)>;

/// Called before each bucket's optimiser steps, to set its learning rate.
using BeforeStep = std::function<void(torch::optim::Optimizer&)>;

/// Steps the parameters of each bucket by themselves, as soon as somebody needs them: those whose
/// gradients have arrived while others are still on their way. Not thread-safe.
class BucketSteps final : public BlockObserver {
 public:
  /// `reducer` may be null (a world of one): all of `parameters` are then one bucket that is always
  /// there. Without a factory nothing is stepped, only settled.
  BucketSteps(GradientReducer* reducer, const std::vector<NamedTensor>& parameters,
              const OptimizerFactory& factory, TraceRecorder* trace = nullptr);

  /// The optimisers are to make one step, and the gradients to be cleared after. It happens now if
  /// no gradient is on its way, otherwise by await() and finish().
  void begin(BeforeStep before);

  /// What is pending of the module's parameters is done: settled, stepped.
  void await(const torch::nn::Module& module);
  void before_block(const torch::nn::Module& block) override { await(block); }
  void after_block(const torch::nn::Module&, const std::vector<torch::Tensor>&) override {}
  /// The same for all parameters.
  void finish();

  bool pending() const { return stepping_ || (reducer_ != nullptr && reducer_->in_flight()); }
  /// Whether this parameter has not been stepped yet.
  bool pending(const torch::Tensor& parameter) const;

  /// One for each bucket; none without a factory.
  const std::vector<std::unique_ptr<torch::optim::Optimizer>>& optimizers() const {
    return optimizers_;
  }

 private:
  void await(std::size_t bucket);
  void complete(std::size_t bucket);
  bool complete_one_that_arrived();

  GradientReducer* reducer_;
  TraceRecorder* trace_;
  std::unordered_map<const void*, std::size_t> bucket_of_;  ///< By TensorImpl.
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  BeforeStep before_;
  bool stepping_ = false;
  std::vector<bool> done_;  ///< Of each bucket, while stepping_.
  std::size_t left_ = 0;
};

}  // namespace gradwire

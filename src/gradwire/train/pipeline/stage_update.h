#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/host/training_host.h"
#include "gradwire/train/activation/await_parameters.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/pipeline/layers.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/pipeline/weight_versions.h"

namespace gradwire {

/// Squared norm of the gradient of each parameter of a stage, in order. The same on every replica.
struct SquaredNorms {
  std::vector<double> replicated;  ///< Norms of parameters that are equal on all ranks of a layer.
  /// Divided parameters: the squared norms of this rank's parts; 0 if another rank counts them.
  std::vector<double> divided;
};

/// The parameters of one stage: adds the gradients of its replicas and steps the optimizer. With a
/// synchronous schedule the step may complete later, layer by layer, as the next forward reaches
/// them.
class StageUpdate {
 public:
  virtual ~StageUpdate() = default;

  /// Wrap each forward; layers are reported to observer() in between.
  virtual void before_forward() = 0;
  virtual void after_forward(const std::vector<torch::Tensor>& outputs) = 0;
  virtual BlockObserver* observer() = 0;

  /// Returns true if gradients of weights may be computed apart from those of inputs.
  virtual bool splits_backward() const = 0;
  /// Called before each task of a backward. `last`: of the last micro-batch before an update.
  void before_backward(bool last) {
    host().set_synchronizes(last);
    host().expect_backward();
  }

  /// Waits for the sums over replicas of the tied parameters' gradients.
  virtual void wait_for_gradients() = 0;
  /// This rank's part of a tied parameter of the stage: all of it, or with ZeRO its shard, which is
  /// the same range on the ranks that have the parameter in other stages. The gradient is valid
  /// after wait_for_gradients(), and zero if there was none; it may be changed until step().
  virtual torch::Tensor own_gradient(const torch::Tensor& parameter);
  virtual torch::Tensor own_values(const torch::Tensor& parameter);
  /// Waits for the sums over replicas. Collective over them.
  virtual SquaredNorms squared_norms() = 0;
  /// Steps with the gradients times `factor`, and clears them.
  virtual void step(BeforeStep before, double factor) = 0;

  virtual Checkpointable& state() = 0;
  /// The steps of the replicas: their gradients, buffers, and the cost of both.
  virtual TrainingHost& host() const = 0;

  /// Returns the versions of the weights; null if the schedule is synchronous.
  virtual StageWeights* weights() { return nullptr; }
};

/// For synchronous schedules. Collective over the replicas. `module` must outlive it. `tied`: its
/// trainable parameters that are tied.
std::unique_ptr<StageUpdate> make_stage_update(StageModule& module, const DataParallelism& data,
                                               const OptimizerFactory& optimizer,
                                               const std::vector<torch::Tensor>& tied);

/// For asynchronous schedules: steps the stage while micro-batches are under way, with the mean of
/// its replicas' gradients, which step() waits for. Collective over the replicas. `module` must
/// outlive it. Throws Exception(invalid_argument) if the method does not support the optimizer.
std::unique_ptr<StageUpdate> make_asynchronous_update(StageModule& module, WeightMethod method,
                                                      const StagePlace& place,
                                                      const DataParallelism& data,
                                                      const OptimizerFactory& optimizer);

}  // namespace gradwire

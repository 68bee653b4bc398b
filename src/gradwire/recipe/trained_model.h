#pragma once

#include <memory>

#include <torch/torch.h>

#include "gradwire/recipe/train_config.h"
#include "gradwire/step/step_host.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/data_parallel/no_sync.h"
#include "gradwire/train/group.h"
#include "gradwire/train/optim/mixed_precision.h"
#include "gradwire/train/zero/zero_core.h"

namespace gradwire::recipe {

/// A model trained on several ranks as configured: with DataParallel, or one of Zero's stages.
class TrainedModel {
 public:
  virtual ~TrainedModel() = default;

  virtual torch::Tensor operator()(const torch::Tensor& inputs) = 0;

  /// Clips the gradients as configured, and steps with that learning rate. `scaler`, if not null,
  /// has scaled the loss; it is told if gradients were finite. Returns false if they were not; the
  /// step is then skipped.
  virtual bool step(double learning_rate, LossScaler* scaler) = 0;
  /// Completes the pending step.
  virtual void finish() = 0;

  virtual torch::nn::Sequential& module() = 0;
  /// Completes the step, and gathers sharded parameters until the next step. Collective.
  virtual torch::nn::Sequential& whole_module() = 0;
  virtual void synchronize_buffers() = 0;

  virtual SyncControl& core() = 0;  ///< For NoSync.
  virtual step::StepStats stats() const = 0;
  /// For saving and loading.
  virtual Checkpointable& state() = 0;
  /// The exchange whose state (error-feedback residuals) belongs to the checkpoint; null if none.
  /// Call between steps.
  virtual exchange::Exchange* feedback() = 0;
  /// Call before the last backward of a step. Returns true if the step is taken in backward, so
  /// that step() must not be called.
  virtual bool step_in_backward(double /*learning_rate*/) { return false; }
};

/// Options of a Zero with this configuration. `config` and `trace` (which may be null) must outlive
/// it.
ZeroOptions zero_options(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace);

/// `config` and `trace` (which may be null) must outlive it. Collective.
std::unique_ptr<TrainedModel> make_trained_model(const TrainConfig& config,
                                                 torch::nn::Sequential module, ProcessGroup group,
                                                 TraceRecorder* trace);

}  // namespace gradwire::recipe

#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/data/batch.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/recipe/trained_model.h"
#include "gradwire/train/data_parallel/accumulate.h"
#include "gradwire/train/optim/loss_scaler.h"

namespace gradwire {

/// Forward, backward and optimizer step of a classifier, as configured.
class TrainingStep {
 public:
  /// `trace` may be null. All arguments must outlive this.
  TrainingStep(const TrainConfig& config, TrainedModel& model, TraceRecorder* trace);

  /// Runs one step on this rank's part of a batch with that learning rate. Returns its mean loss.
  double run(const Batch& batch, double learning_rate);

  LossScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

 private:
  const TrainConfig& config_;
  TrainedModel& model_;
  TraceRecorder* trace_;
  std::optional<LossScaler> scaler_;  ///< With fp16.
};

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/data/batch.h"
#include "gradwire/train/accumulate.h"
#include "gradwire/train/loss_scaler.h"
#include "gradwire/train/train_config.h"
#include "gradwire/train/trained_model.h"

namespace gradwire {

/// Forward, backward and optimiser of a classifier, as a configuration says.
class TrainingStep {
 public:
  /// `trace` may be null. All must outlive this.
  TrainingStep(const TrainConfig& config, TrainedModel& model, TraceRecorder* trace);

  /// One step on this rank's part of a batch, at that learning rate; the mean loss over it.
  double run(const Batch& batch, double learning_rate);

  LossScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

 private:
  const TrainConfig& config_;
  TrainedModel& model_;
  TraceRecorder* trace_;
  std::optional<LossScaler> scaler_;  ///< Of fp16.
};

}  // namespace gradwire

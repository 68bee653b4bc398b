#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/data/batch.h"
#include "gradwire/train/accumulate.h"
#include "gradwire/train/data_parallel.h"
#include "gradwire/train/loss_scaler.h"
#include "gradwire/train/train_config.h"

namespace gradwire {

/// Forward, backward and optimiser of a classifier, as a configuration says.
class TrainingStep {
 public:
  /// `trace` may be null. All must outlive this.
  TrainingStep(const TrainConfig& config, DataParallel<torch::nn::Sequential>& model,
               TraceRecorder* trace);

  /// One step on this rank's part of a batch, at that learning rate; the mean loss over it.
  double run(const Batch& batch, double learning_rate);

  LossScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

 private:
  bool unscale();

  const TrainConfig& config_;
  DataParallel<torch::nn::Sequential>& model_;
  TraceRecorder* trace_;
  std::vector<torch::Tensor> parameters_;
  std::optional<LossScaler> scaler_;  ///< Of fp16.
};

}  // namespace gradwire

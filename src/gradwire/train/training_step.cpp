#include "gradwire/train/training_step.h"

#include "gradwire/train/optimizers.h"

namespace gradwire {

TrainingStep::TrainingStep(const TrainConfig& config, DataParallel<torch::nn::Sequential>& model,
                           TraceRecorder* trace)
    : config_(config), model_(model), trace_(trace), parameters_(model->parameters()) {
  if (config.precision == Precision::fp16) scaler_.emplace();
}

double TrainingStep::run(const Batch& batch, double learning_rate) {
  const auto loss = accumulate(
      model_, batch.inputs, batch.targets, static_cast<int>(config_.accumulation_steps),
      [](const auto& output, const auto& target) { return torch::nll_loss_nd(output, target); },
      {.precision = config_.precision,
       .loss_scale = scaler_ ? scaler_->scale() : 1,
       .trace = trace_});
  if (unscale()) {
    model_.step([learning_rate](auto& optimizer) { set_learning_rate(optimizer, learning_rate); });
  } else {
    model_->zero_grad();
  }
  return loss.item<double>();
}

/// Whether the step may be taken.
bool TrainingStep::unscale() {
  if (!scaler_) return true;
  const TraceScope scope(trace_, TraceKind::optimiser);
  const bool finite = unscale_gradients(parameters_, scaler_->scale());
  scaler_->update(finite);
  return finite;
}

}  // namespace gradwire

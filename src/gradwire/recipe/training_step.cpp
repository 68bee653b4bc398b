#include "gradwire/recipe/training_step.h"

namespace gradwire {

TrainingStep::TrainingStep(const TrainConfig& config, TrainedModel& model, TraceRecorder* trace)
    : config_(config), model_(model), trace_(trace) {
  if (config.precision == Precision::fp16) scaler_.emplace(config.loss_scaling);
}

double TrainingStep::run(const Batch& batch, double learning_rate) {
  // The last backward of accumulate() takes it.
  const bool stepped = !scaler_ && model_.step_in_backward(learning_rate);
  const auto loss = accumulate(
      model_, batch.inputs, batch.targets, static_cast<int>(config_.accumulation_steps),
      [](const auto& output, const auto& target) { return torch::nll_loss_nd(output, target); },
      {.precision = config_.precision,
       .loss_scale = scaler_ ? scaler_->scale() : 1,
       .trace = trace_});
  if (!stepped) model_.step(learning_rate, scaler());
  return loss.item<double>();
}

}  // namespace gradwire

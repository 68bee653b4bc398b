#include "gradwire/train/pipeline/pipeline.h"

#include <utility>

#include "gradwire/train/pipeline/hybrid_model.h"

namespace gradwire {

Pipeline::Pipeline(const Layers& layers, Options options)
    : model_(std::make_unique<HybridModel>(layers, std::move(options))) {}

Pipeline::~Pipeline() = default;

LossSum Pipeline::train_step(const torch::Tensor& inputs, const torch::Tensor& targets,
                             const StepOptions& step) {
  return model_->train_step(inputs, targets, step);
}

void Pipeline::finish() {
  model_->finish();
}

torch::Tensor Pipeline::evaluate(const torch::Tensor& inputs, std::int64_t samples) {
  return model_->evaluate(inputs, samples);
}

const std::vector<LocalStage>& Pipeline::stages() const {
  return model_->stages();
}

bool Pipeline::has_first_stage() const {
  return model_->has_first_stage();
}

bool Pipeline::has_last_stage() const {
  return model_->has_last_stage();
}

std::int64_t Pipeline::steps() const {
  return model_->steps();
}

step::StepStats Pipeline::stats() const {
  return model_->stats();
}

std::string Pipeline::describe() const {
  return model_->describe();
}

std::vector<TensorPiece> Pipeline::pieces(bool make_states) {
  return model_->pieces(make_states);
}

void Pipeline::loaded() {
  model_->loaded();
}

void Pipeline::resume_at(std::int64_t step, const std::string& /*progress*/) {
  model_->resume_at(step);
}

std::vector<exchange::Exchange*> Pipeline::feedback() {
  return model_->feedback();
}

}  // namespace gradwire

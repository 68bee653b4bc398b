#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/pipeline/pipeline_stages.h"

namespace gradwire {

/// Puts modules into evaluation mode, and back.
class EvaluationMode {
 public:
  explicit EvaluationMode(const std::vector<LocalStage>& stages) {
    for (const LocalStage& stage : stages) {
      for (const auto& module : stage.module->modules()) {
        modes_.emplace_back(module, module->is_training());
      }
      stage.module->eval();
    }
  }
  ~EvaluationMode() {
    // A module's train() applies to its children, which come later.
    for (const auto& [module, training] : modes_) module->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace gradwire

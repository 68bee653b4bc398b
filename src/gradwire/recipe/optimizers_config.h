#pragma once

#include <cstdint>
#include <string>

#include "gradwire/recipe/json_object.h"

namespace gradwire {

/// Optimizer settings; docs/training.md explains them.
struct OptimizerConfig {
  std::string name = "sgd";  ///< "sgd", "adam", "lars" or "lamb".
  double learning_rate = 0.05;
  double momentum = 0.9;             ///< sgd, lars.
  bool nesterov = false;             ///< sgd.
  double beta1 = 0.9;                ///< adam, lamb.
  double beta2 = 0.999;              ///< adam, lamb.
  double epsilon = 1e-8;             ///< adam, lamb.
  double trust_coefficient = 0.001;  ///< lars.
  double weight_decay = 0;
  /// Scaling of the rate with the batch size: "none", "linear" or "sqrt".
  std::string scaling = "none";
  /// Batch size that learning_rate was tuned for; 0 without scaling.
  std::int64_t base_batch_size = 0;
};

/// Throws Exception(invalid_argument) that names the key, also for keys of another optimizer.
OptimizerConfig read_optimizer(JsonObject json);

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <string>

#include "gradwire/train/json_object.h"

namespace gradwire {

/// Which optimiser trains, and how; docs/training.md has the same with explanations.
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
  std::string scaling = "none";      ///< Of the rate with the batch: "none", "linear" or "sqrt".
  std::int64_t base_batch_size = 0;  ///< What learning_rate was found for; 0 without scaling.
};

/// Throws Exception(invalid_argument) that names the key, also for keys of another optimiser.
OptimizerConfig read_optimizer(JsonObject json);

}  // namespace gradwire

#pragma once

#include <torch/torch.h>

#include "gradwire/train/train_config.h"

namespace gradwire {

/// The model that a configuration names, for N x 1 x 28 x 28 images, giving N x 10
/// log-probabilities. Weights come from torch's default generator.
///
///   convnet  two times (3x3 convolution, ReLU, 2x2 maximum), two fully connected layers
///   mlp      two fully connected layers
torch::nn::Sequential make_model(const ModelConfig& config);

}  // namespace gradwire

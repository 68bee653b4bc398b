#pragma once

#include <torch/torch.h>

#include "gradwire/train/train_config.h"

namespace gradwire {

/// The model that a configuration names, giving log-probabilities of classes along dimension 1: of
/// N x 1 x 28 x 28 images N x 10, of N x T bytes of a text N x vocabulary x T. Weights come from
/// torch's default generator.
///
///   convnet      two times (3x3 convolution, ReLU, 2x2 maximum), two fully connected layers
///   mlp          two fully connected layers
///   resnet       a residual network with norms over groups of channels: train/resnet_model.h
///   transformer  for text: train/text_model.h
///   gpt          the same as in GPT-2: with biases, dropout and a vocabulary of any size
torch::nn::Sequential make_model(const ModelConfig& config);

}  // namespace gradwire

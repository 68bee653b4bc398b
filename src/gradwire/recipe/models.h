#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/recipe/tensor_plan.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/train/parallel/window.h"
#include "gradwire/train/pipeline/layers.h"
#include "gradwire/train/pipeline/pipeline_loss.h"

namespace gradwire::recipe {

/// The ranks over which the layers of a model are divided.
struct LayerGroups {
  ProcessGroup tensor;  ///< Null: not divided.
  TensorPlan plan;
  ProcessGroup spatial;  ///< Null: not divided.
  SpatialParts parts;    ///< Parts of the images, over `spatial`.

  /// The ranks over which that layer is divided, of divisible_layers(); null: it is not.
  ProcessGroup of(const std::string& layer) const {
    return plan.divides(layer) ? tensor : ProcessGroup();
  }
};

/// Returns the layers of the model that a configuration names. The model returns log-probabilities
/// of classes along dimension 1: N x 10 for N x 1 x 28 x 28 images, N x vocabulary x T for N x T
/// bytes of text, N x 2 for N x (dense + fields) features of clicks. In training, if `groups`
/// divides the head of a text model, it returns this rank's part of the logits, N x T x part, which
/// likelihood_sum() takes.
/// Weights come from torch's default generator, and are the same however the model is divided.
///
///   convnet      twice (3x3 convolution, ReLU, 2x2 max pooling), two fully connected layers
///   mlp          fully connected layers, two unless configured
///   resnet       a residual network with group normalization (He et al., CVPR 2016)
///   transformer  for text, causal, with pre-layer normalization
///   gpt          the same as in GPT-2: with biases, dropout and a vocabulary of any size
///   dlrm         for click-through: an embedding table, dot products of its rows
Layers make_layers(const ModelConfig& config, const LayerGroups& groups = {});

/// Makes all of these layers.
torch::nn::Sequential make_model(const ModelConfig& config);

/// Makes the configured model on a rank of a run. Weights depend on the seed only; later random
/// numbers (dropout) differ between ranks. Throws as check_groups().
torch::nn::Sequential seeded_model(const TrainConfig& config, int rank);

/// JSON description for checkpoints: the configuration's model, at least its name.
std::string model_description(const TrainConfig& config);

/// Throws Exception(invalid_argument) for a group of the optimizer that has no parameter. Returns
/// the number of parameters in each group (optimizers.h); nothing if there are no groups. Leaves
/// torch's random numbers as they were.
std::vector<std::size_t> check_groups(const TrainConfig& config);

/// The sum of negative log-likelihoods of what the model returns in training.
PipelineLoss likelihood_sum(const ModelConfig& config, const LayerGroups& groups);

}  // namespace gradwire::recipe

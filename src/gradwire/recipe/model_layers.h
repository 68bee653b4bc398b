#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/recipe/models.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/pipeline/layers.h"

// The parts of make_layers().
namespace gradwire::recipe {

/// Height and width of images.
inline constexpr std::int64_t kImageSide = 28;

/// Adds the layers of "convnet", "mlp" or "resnet": N x 1 x 28 x 28 images to N x 10
/// log-probabilities.
void add_image_model(Layers& layers, const ModelConfig& config, const LayerGroups& groups);

/// Adds the layers of a causal transformer: N x T bytes (int64) to N x vocabulary x T
/// log-probabilities of the next byte; with a divided head, in training, to this rank's part of
/// the logits, N x T x part. Architecture: Vaswani et al., NeurIPS 2017, with pre-layer
/// normalization (Xiong et al., ICML 2020, figure 1b), learned positions and no biases (Chowdhery
/// et al., arXiv:2204.02311, section 2). Weights are initialized as in GPT-2: standard deviation
/// 0.02, divided by sqrt(2 layers) at the end of residual branches (Radford et al., 2019, section
/// 2.3).
///
/// With the name "gpt", the model is GPT-2's: it has biases (initialized to zero), and dropout
/// after the embedding and at the end of residual branches. Embedding and output share their weight
/// if it is tied. The blocks are layers "blockN"; the first `checkpoints` of them are checkpointed.
void add_text_model(Layers& layers, const ModelConfig& config, const LayerGroups& groups);

/// Adds the layers of "dlrm" (Naumov et al., arXiv:1906.00091): ClickFeatures, the dot products of
/// each pair of its vectors, and a top MLP. N x (dense + fields) float64, as ClickData has them, to
/// N x 2 log-probabilities.
void add_click_model(Layers& layers, const ModelConfig& config);

/// Adds a block "blockN". If `checkpoint` is true, its activations are checkpointed. Its parameters
/// and their names are the same either way.
template <class Impl, class... Arguments>
void add_block(Layers& layers, std::int64_t number, bool checkpoint, Arguments... arguments) {
  const auto name = "block" + std::to_string(number);
  if (checkpoint) {
    layers.add(name, [=] { return std::make_shared<CheckpointedImpl<Impl>>(arguments...); });
  } else {
    layers.add(name, [=] { return std::make_shared<Impl>(arguments...); });
  }
}

}  // namespace gradwire::recipe

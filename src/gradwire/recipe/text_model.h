#pragma once

#include "gradwire/recipe/layer_groups.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/train/pipeline/layers.h"

namespace gradwire::recipe {

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

}  // namespace gradwire::recipe

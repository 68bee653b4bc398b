#pragma once

#include <torch/torch.h>

#include "gradwire/train/train_config.h"

namespace gradwire {

/// Appends a causal transformer to `model`: N x T bytes (int64) to N x vocabulary x T
/// log-probabilities of the byte after each. Vaswani et al., NeurIPS 2017, with the norms before
/// the layers (Xiong et al., ICML 2020, figure 1b), learned positions, no biases (Chowdhery et al.,
/// arXiv:2204.02311, section 2), and weights drawn as in GPT-2: deviation 0.02, less by sqrt(2
/// layers) where a residual branch ends (Radford et al., 2019, section 2.3). With the name "gpt" it
/// is GPT-2's: with biases (which begin as zero), and dropout after the embedding and where a
/// residual branch ends. Embedding and output have weights of their own. The layers are children
/// "blockN" of `model`; the first `checkpoints` of them are checkpointed.
void add_transformer(torch::nn::Sequential& model, const ModelConfig& config);

}  // namespace gradwire

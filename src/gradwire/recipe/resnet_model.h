#pragma once

#include <torch/torch.h>

#include "gradwire/recipe/train_config.h"

namespace gradwire {

/// Appends a residual network to `model`: N x 1 x 28 x 28 images to N x 10 log-probabilities (He et
/// al., CVPR 2016, table 1, for small images). It has a 3x3 convolution, four stages of `blocks`
/// blocks with 1, 2, 4, 8 times `channels`, global average pooling and a fully connected layer.
/// Each stage but the first halves the image. Group normalization (Wu and He, ECCV 2018) makes the
/// output independent of how a batch is split. The last norm of each block is initialized to zero
/// (Goyal et al., arXiv:1706.02677, section 5.1). The blocks are children of `model`; the first
/// `checkpoints` of them are checkpointed.
void add_resnet(torch::nn::Sequential& model, const ModelConfig& config);

}  // namespace gradwire

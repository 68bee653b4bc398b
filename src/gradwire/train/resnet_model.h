#pragma once

#include <torch/torch.h>

#include "gradwire/train/train_config.h"

namespace gradwire {

/// Appends a residual network to `model`: N x 1 x 28 x 28 images to N x 10 log-probabilities. A 3x3
/// convolution, four stages of `blocks` blocks with 1, 2, 4, 8 times `channels`, each but the first
/// halving the image, then the mean over it and a fully connected layer (He et al., CVPR 2016,
/// table 1, for small images). Norms are over groups of channels of one image (Wu and He, ECCV
/// 2018), so that what comes out does not depend on how a batch is split; the last of each block
/// begins as zero (Goyal et al., arXiv:1706.02677, section 5.1). The blocks are children of
/// `model`; the first `checkpoints` of them are checkpointed.
void add_resnet(torch::nn::Sequential& model, const ModelConfig& config);

}  // namespace gradwire

#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/train/group.h"

namespace gradwire {

/// torch::dropout of a tensor that is divided along `dimension`, where the whole has `size`
/// indices, with the mask of the unsplit model: draws the whole mask and keeps this rank's part.
/// So ranks with the same generator state drop other elements each, and have the same state
/// afterwards. No communication. Dropout of replicated tensors is torch's own, with the same state
/// on every rank.
torch::Tensor dropout_of_part(const torch::Tensor& part, double p, bool training,
                              std::int64_t dimension, std::int64_t size, const ProcessGroup& group);

}  // namespace gradwire

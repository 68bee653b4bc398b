#pragma once

#include "gradwire/recipe/layer_groups.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/train/pipeline/layers.h"

namespace gradwire::recipe {

/// Height and width of images.
inline constexpr std::int64_t kImageSide = 28;

/// Adds the layers of "convnet", "mlp" or "resnet": N x 1 x 28 x 28 images to N x 10
/// log-probabilities.
void add_image_model(Layers& layers, const ModelConfig& config, const LayerGroups& groups);

}  // namespace gradwire::recipe

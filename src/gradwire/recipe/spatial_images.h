#pragma once

#include <memory>
#include <utility>

#include <torch/torch.h>

#include "gradwire/train/parallel/spatial_layers.h"

namespace gradwire::recipe {

/// Square images whose space is divided over ranks: what passes between layers is this rank's part.
struct SpatialImage {
  std::int64_t side = 0;  ///< Height and width of the whole image.
  SpatialParts parts;
  ProcessGroup group;     ///< Null: not divided.
  bool is_whole = false;  ///< Every rank has the whole image.

  DividedTensor divided(const torch::Tensor& own) const {
    const Division division = spatial_division({own.size(0), own.size(1), side, side}, parts);
    return is_whole ? divide(own, division, group) : DividedTensor{own, division};
  }
};

// Layers from the part of an image that this rank has to its part of the output. Parameters are
// those of the layers of torch::nn.

struct SpatialConvolutionLayer final : SpatialConv2dImpl {
  SpatialConvolutionLayer(const torch::nn::Conv2d& whole, const SpatialImage& input)
      : SpatialConv2dImpl(whole, input.parts, input.group), image(input) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return SpatialConv2dImpl::forward(image.divided(x)).own;
  }
  SpatialImage image;
};

struct SpatialMaxPoolLayer final : SpatialMaxPool2dImpl {
  SpatialMaxPoolLayer(const torch::nn::MaxPool2dOptions& options, const SpatialImage& input)
      : SpatialMaxPool2dImpl(options, input.parts, input.group), image(input) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return SpatialMaxPool2dImpl::forward(image.divided(x)).own;
  }
  SpatialImage image;
};

/// Returns the whole image, flattened, on every rank.
struct SpatialFlattenLayer final : torch::nn::Module {
  explicit SpatialFlattenLayer(SpatialImage input) : image(std::move(input)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return undivide(image.divided(x), image.group).flatten(1);
  }
  SpatialImage image;
};

/// Returns the mean over height and width, on every rank.
struct SpatialMeanLayer final : torch::nn::Module {
  explicit SpatialMeanLayer(SpatialImage input) : image(std::move(input)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return mean_over_space(image.divided(x), image.group);
  }
  SpatialImage image;
};

}  // namespace gradwire::recipe

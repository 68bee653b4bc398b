#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/train/parallel/box_exchange.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/parallel/window.h"

namespace gradwire {

/// torch::nn::Conv2d over an image that is divided by space. Input: [samples, channels, height,
/// width] in any division by height and width; output: in spatial_division(). Ranks exchange the
/// rows and columns that their output needs beyond their own (halo): any kernel, stride, dilation
/// and zero padding, uneven strips, strips lower than the halo, strips without output. Weights are
/// replicated, with torch's names and initial values; their gradients are summed over ranks.
///
/// Throws Exception(invalid_argument) if parts.count() is not the size of the group, or the padding
/// is not a number of zeros.
class SpatialConv2dImpl : public ParallelModule {
 public:
  SpatialConv2dImpl(const torch::nn::Conv2dOptions& options, const SpatialParts& parts,
                    const ProcessGroup& group);
  /// Has the options and the weights of `whole`.
  SpatialConv2dImpl(const torch::nn::Conv2d& whole, const SpatialParts& parts,
                    const ProcessGroup& group);

  DividedTensor forward(const DividedTensor& input);

  torch::nn::Conv2dOptions options;
  torch::Tensor weight;  ///< [output channels, input channels / groups, kernel height, width]
  torch::Tensor bias;    ///< [output channels]

 private:
  Window window_;
  SpatialParts parts_;
};
TORCH_MODULE(SpatialConv2d);

/// torch::nn::MaxPool2d over an image that is divided by space; see SpatialConv2d. ceil_mode is not
/// supported: the constructor throws Exception(invalid_argument). A dilated window that covers only
/// padding is -infinity, and has no gradient.
class SpatialMaxPool2dImpl : public ParallelModule {
 public:
  /// parts.count() must be the size of the group.
  SpatialMaxPool2dImpl(const torch::nn::MaxPool2dOptions& options, const SpatialParts& parts,
                       const ProcessGroup& group);

  DividedTensor forward(const DividedTensor& input);

 private:
  Window window_;
  SpatialParts parts_;
};
TORCH_MODULE(SpatialMaxPool2d);

/// torch::nn::AvgPool2d over an image that is divided by space. ceil_mode and divisor_override are
/// not supported.
class SpatialAvgPool2dImpl : public ParallelModule {
 public:
  SpatialAvgPool2dImpl(const torch::nn::AvgPool2dOptions& options, const SpatialParts& parts,
                       const ProcessGroup& group);

  DividedTensor forward(const DividedTensor& input);

 private:
  Window window_;
  SpatialParts parts_;
  bool count_padding_;
};
TORCH_MODULE(SpatialAvgPool2d);

/// The mean over height and width: [samples, channels], replicated. One all-reduce of that; none
/// backward.
torch::Tensor mean_over_space(const DividedTensor& x, const ProcessGroup& group);

}  // namespace gradwire

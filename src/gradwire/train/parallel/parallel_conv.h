#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {

/// Options of a ParallelConv2d: those of torch::nn::Conv2d (zero padding), and how it is divided.
/// input_channels x output_channels must be the size of the group.
struct ParallelConv2dOptions {
  ParallelConv2dOptions(std::int64_t in, std::int64_t out, torch::ExpandingArray<2> kernel)
      : in_channels_(in), out_channels_(out), kernel_size_(kernel) {}

  TORCH_ARG(std::int64_t, in_channels);
  TORCH_ARG(std::int64_t, out_channels);
  TORCH_ARG(torch::ExpandingArray<2>, kernel_size);
  TORCH_ARG(torch::ExpandingArray<2>, stride) = 1;
  TORCH_ARG(torch::ExpandingArray<2>, padding) = 0;
  TORCH_ARG(torch::ExpandingArray<2>, dilation) = 1;
  TORCH_ARG(std::int64_t, groups) = 1;
  TORCH_ARG(bool, bias) = true;
  /// Parts of the input channels. Rank r has part r % input_channels.
  TORCH_ARG(int, input_channels) = 1;
  /// Parts of the output channels. Rank r has part r / input_channels.
  TORCH_ARG(int, output_channels) = 1;
  /// False: the input has all channels, replicated.
  TORCH_ARG(bool, input_is_parallel) = true;
  /// True: the output has all channels, replicated.
  TORCH_ARG(bool, gather_output) = false;
};

/// torch::nn::Conv2d divided over ranks by channels; SpatialConv2d divides by space. Input: this
/// rank's part of the channels of [samples, channels, height, width]; output: its part of the
/// output channels. Partial sums are added over the ranks of one output part, and gradients of
/// inputs over those of one input part: an all-reduce each, or, if both are divided, an exchange of
/// the same bytes. The bias is added once. Initial weights are those of torch::nn::Conv2d.
///
/// Throws Exception(invalid_argument) if channels do not divide, the parts are not the group's
/// size, or groups is not 1 in a group of several ranks.
class ParallelConv2dImpl : public ParallelModule {
 public:
  /// Takes its part of `initial`, which has the options' channels and kernel; by default of a
  /// torch::nn::Conv2d that it makes.
  ParallelConv2dImpl(const ParallelConv2dOptions& options, const ProcessGroup& group,
                     torch::nn::Conv2d initial = nullptr);

  torch::Tensor forward(const torch::Tensor& input);

  ParallelConv2dOptions options;
  torch::Tensor weight;  ///< [own output channels, own input channels, kernel height, width]
  torch::Tensor bias;    ///< [own output channels]

 private:
  void check_options() const;
  Division channel_division(const Shape& shape, std::size_t dimension, bool input) const;
  torch::Tensor own_channels(const torch::Tensor& whole) const;
  torch::Tensor all_channels(const torch::Tensor& own) const;
};
TORCH_MODULE(ParallelConv2d);

}  // namespace gradwire

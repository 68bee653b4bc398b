#include "gradwire/train/parallel/parallel_conv.h"

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/box_exchange.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire {
namespace {

torch::nn::Conv2d plain_convolution(const ParallelConv2dOptions& options) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(options.in_channels(), options.out_channels(), options.kernel_size())
          .stride(options.stride())
          .padding(options.padding())
          .dilation(options.dilation())
          .groups(options.groups())
          .bias(options.bias()));
}

void check_channels(const char* which, std::int64_t channels, int parts) {
  if (channels % parts == 0) return;
  refuse("ParallelConv2d: {} {} channels cannot be divided into {} equal parts", channels, which,
         parts);
}

}  // namespace

ParallelConv2dImpl::ParallelConv2dImpl(const ParallelConv2dOptions& options_,
                                       const ProcessGroup& group, torch::nn::Conv2d initial)
    : ParallelModule(group), options(options_) {
  check_options();
  const auto plain = initial ? initial : plain_convolution(options);
  const Shape shape = plain->weight.sizes().vec();
  weight = register_part("weight", plain->weight,
                         divided(shape, 0, options.output_channels(), 1, options.input_channels()));
  if (options.bias()) {
    bias = register_part("bias", plain->bias, channel_division({shape[0]}, 0, false));
  } else {
    bias = register_parameter("bias", torch::Tensor(), false);
  }
}

void ParallelConv2dImpl::check_options() const {
  const int input = options.input_channels();
  const int output = options.output_channels();
  if (input < 1 || output < 1 || input * output != ranks()) {
    refuse(
        "ParallelConv2d: {} x {} parts of input and output channels in a group of {} ranks; "
        "the product must be the number of ranks",
        input, output, ranks());
  }
  if (ranks() > 1 && options.groups() != 1) {
    refuse(
        "ParallelConv2d: {} groups cannot be divided by channels; divide by space with "
        "SpatialConv2d",
        options.groups());
  }
  check_channels("input", options.in_channels(), input);
  check_channels("output", options.out_channels(), output);
}

/// Which channels each rank has: of the input, or of the output.
Division ParallelConv2dImpl::channel_division(const Shape& shape, std::size_t dimension,
                                              bool input) const {
  const int columns = options.input_channels();
  const int parts = input ? columns : options.output_channels();
  const Division by_part = divided(shape, dimension, parts);
  Division division{shape, {}};
  for (int r = 0; r < ranks(); ++r) {
    const int part = input ? r % columns : r / columns;
    division.boxes.push_back(by_part.boxes[static_cast<std::size_t>(part)]);
  }
  return division;
}

/// This rank's input channels of a replicated tensor.
torch::Tensor ParallelConv2dImpl::own_channels(const torch::Tensor& whole) const {
  const Division division = channel_division(whole.sizes().vec(), 1, true);
  const Box own = division.boxes[static_cast<std::size_t>(rank())];
  const BoxExchange gather(division, replicated(division.shape, ranks()), group());
  return linear_map(
      whole, [&](const torch::Tensor& x) { return view_of_box(x, own).clone(); },
      [gather](const torch::Tensor& dy) { return gather.forward(dy); });
}

/// All output channels, replicated.
torch::Tensor ParallelConv2dImpl::all_channels(const torch::Tensor& own) const {
  Shape shape = own.sizes().vec();
  shape[1] = options.out_channels();
  return undivide({own, channel_division(shape, 1, false)}, group());
}

torch::Tensor ParallelConv2dImpl::forward(const torch::Tensor& input) {
  const auto apply = [&](const torch::Tensor& x, const torch::Tensor& b) {
    return torch::conv2d(x, weight, b, options.stride(), options.padding(), options.dilation(),
                         options.groups());
  };
  if (ranks() == 1) return apply(input, bias);
  const int columns = options.input_channels();
  const auto input_part = [columns](int r) { return r % columns; };
  const auto output_part = [columns](int r) { return r / columns; };
  const auto itself = [](const torch::Tensor& t) { return t; };
  auto x = options.input_is_parallel() ? input : own_channels(input);
  if (options.output_channels() > 1) {
    x = linear_map(x, itself, [group = group(), input_part](const torch::Tensor& dx) {
      return subset_sum(dx, input_part, group);
    });
  }
  auto y = apply(x, columns == 1 ? bias : torch::Tensor());
  if (columns > 1) {
    y = linear_map(
        y, [&](const torch::Tensor& t) { return subset_sum(t, output_part, group()); }, itself);
    if (options.bias()) y = y + bias.to(y.scalar_type()).view({1, -1, 1, 1});
  }
  return options.gather_output() ? all_channels(y) : y;
}

}  // namespace gradwire

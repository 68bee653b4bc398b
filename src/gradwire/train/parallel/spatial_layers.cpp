#include "gradwire/train/parallel/spatial_layers.h"

#include <array>
#include <limits>
#include <variant>

#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "gradwire/train/parallel/sequence_parallel.h"

namespace gradwire {
namespace {

void check_parts(const char* who, const SpatialParts& parts, int ranks) {
  if (parts.count() == ranks) return;
  refuse("{}: {} x {} parts of space in a group of {} ranks; they must be as many", who,
         parts.height, parts.width, ranks);
}

void check_pool(const char* who, bool ceil_mode, const SpatialParts& parts, int ranks) {
  if (ceil_mode) refuse("{}: ceil_mode is not supported; pad the image", who);
  check_parts(who, parts, ranks);
}

/// Where the output is, if it has `channels`.
Division output_division(const char* who, const Shape& shape, std::int64_t channels,
                         const Window& window, const SpatialParts& parts) {
  if (shape.size() != 4) {
    refuse("{}: expected [samples, channels, height, width], found [{}]", who,
           fmt::join(shape, ", "));
  }
  return spatial_division(
      {shape[0], channels, window.output_size(shape[2], 0), window.output_size(shape[3], 1)},
      parts);
}

/// Elements of the image in each window of an output box: [height, width].
torch::Tensor window_elements(const Window& window, const Box& box, const Shape& input,
                              const torch::TensorOptions& options) {
  std::array<torch::Tensor, 2> counts;
  for (std::size_t d = 0; d < 2; ++d) {
    std::vector<double> values;
    for (auto i = box.begin[2 + d]; i < box.end[2 + d]; ++i) {
      const auto span = needed_span(window, d, i, i + 1, input[2 + d]);
      values.push_back(static_cast<double>(span.end - span.begin));
    }
    counts[d] = torch::tensor(values, torch::kFloat64);
  }
  return torch::outer(counts[0], counts[1]).to(options);
}

torch::ExpandingArray<2> zero_padding(const torch::nn::Conv2dOptions& options) {
  const auto* const zeros = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  if (zeros && std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode())) {
    return *zeros;
  }
  refuse("SpatialConv2d: padding must be a number of zeros, not \"same\", \"valid\" or values");
}

torch::nn::Conv2dOptions options_of(const torch::nn::Conv2d& convolution) {
  const auto& options = convolution->options;
  return torch::nn::Conv2dOptions(options.in_channels(), options.out_channels(),
                                  options.kernel_size())
      .stride(options.stride())
      .padding(options.padding())
      .dilation(options.dilation())
      .groups(options.groups())
      .bias(options.bias())
      .padding_mode(options.padding_mode());
}

}  // namespace

SpatialConv2dImpl::SpatialConv2dImpl(const torch::nn::Conv2dOptions& options_,
                                     const SpatialParts& parts, const ProcessGroup& group)
    : SpatialConv2dImpl(torch::nn::Conv2d(options_), parts, group) {}

SpatialConv2dImpl::SpatialConv2dImpl(const torch::nn::Conv2d& whole, const SpatialParts& parts,
                                     const ProcessGroup& group)
    : ParallelModule(group),
      options(options_of(whole)),
      window_{*options.kernel_size(), *options.stride(), *zero_padding(options),
              *options.dilation()},
      parts_(parts) {
  check_parts("SpatialConv2d", parts, ranks());
  weight = register_parameter("weight", whole->weight);
  bias = register_parameter("bias", whole->bias, options.bias());
}

DividedTensor SpatialConv2dImpl::forward(const DividedTensor& input) {
  const Division output = output_division("SpatialConv2d", input.division.shape,
                                          options.out_channels(), window_, parts_);
  if (input.division.shape[1] != options.in_channels()) {
    refuse("SpatialConv2d: expected {} channels, found [{}]", options.in_channels(),
           fmt::join(input.division.shape, ", "));
  }
  const auto x = fetch_window(input, output, window_, 0, group());
  const auto parameters = copy_together({weight, bias}, group());
  const Box& own = output.boxes[static_cast<std::size_t>(rank())];
  if (own.empty()) return {empty_output(own.shape(), {x, parameters[0], parameters[1]}), output};
  constexpr std::array<std::int64_t, 2> kNoPadding{0, 0};
  return {torch::conv2d(x, parameters[0], parameters[1], options.stride(), kNoPadding,
                        options.dilation(), options.groups()),
          output};
}

SpatialMaxPool2dImpl::SpatialMaxPool2dImpl(const torch::nn::MaxPool2dOptions& options,
                                           const SpatialParts& parts, const ProcessGroup& group)
    : ParallelModule(group),
      window_{*options.kernel_size(), *options.stride(), *options.padding(), *options.dilation()},
      parts_(parts) {
  check_pool("SpatialMaxPool2d", options.ceil_mode(), parts, ranks());
}

DividedTensor SpatialMaxPool2dImpl::forward(const DividedTensor& input) {
  const Division output = output_division("SpatialMaxPool2d", input.division.shape,
                                          input.division.shape[1], window_, parts_);
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const auto x = fetch_window(input, output, window_, kLowest, group());
  const Box& own = output.boxes[static_cast<std::size_t>(rank())];
  if (own.empty()) return {empty_output(own.shape(), {x}), output};
  return {torch::max_pool2d(x, window_.kernel, window_.stride, 0, window_.dilation), output};
}

SpatialAvgPool2dImpl::SpatialAvgPool2dImpl(const torch::nn::AvgPool2dOptions& options,
                                           const SpatialParts& parts, const ProcessGroup& group)
    : ParallelModule(group),
      window_{*options.kernel_size(), *options.stride(), *options.padding(), {1, 1}},
      parts_(parts),
      count_padding_(options.count_include_pad()) {
  check_pool("SpatialAvgPool2d", options.ceil_mode(), parts, ranks());
  if (options.divisor_override()) {
    refuse("SpatialAvgPool2d: divisor_override is not supported; scale the result");
  }
}

DividedTensor SpatialAvgPool2dImpl::forward(const DividedTensor& input) {
  const Shape& shape = input.division.shape;
  const Division output = output_division("SpatialAvgPool2d", shape, shape[1], window_, parts_);
  const auto x = fetch_window(input, output, window_, 0, group());
  const Box& own = output.boxes[static_cast<std::size_t>(rank())];
  if (own.empty()) return {empty_output(own.shape(), {x}), output};
  if (count_padding_) return {torch::avg_pool2d(x, window_.kernel, window_.stride), output};
  const auto sums = torch::avg_pool2d(x, window_.kernel, window_.stride, 0, false, true, 1);
  return {sums / window_elements(window_, own, shape, x.options().requires_grad(false)), output};
}

torch::Tensor mean_over_space(const DividedTensor& x, const ProcessGroup& group) {
  const Shape& shape = x.division.shape;
  return sum_over_ranks(x.own.sum({2, 3}), group) / static_cast<double>(shape[2] * shape[3]);
}

}  // namespace gradwire

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/recipe/model_layers.h"
#include "gradwire/recipe/spatial_images.h"
#include "gradwire/train/parallel/parallel_conv.h"
#include "gradwire/train/parallel/parallel_linear.h"
#include "gradwire/train/parallel/parallel_norm.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire::recipe {
namespace {

torch::nn::Conv2d make_small_convolution(std::int64_t from, std::int64_t to) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1));
}

/// A convolution of the "convnet". The first divides its output channels, the second its input's.
void add_convolution(Layers& layers, std::int64_t number, std::int64_t from, std::int64_t to,
                     const LayerGroups& groups) {
  const std::string suffix = std::to_string(number);
  const std::int64_t side = kImageSide / number;
  const SpatialImage input{side, groups.parts, groups.spatial, /*is_whole=*/number == 1};
  layers.add_layer("conv" + suffix, [=, tensor = groups.of("convolutions")] {
    const torch::nn::Conv2d whole = make_small_convolution(from, to);
    if (input.group)
      return torch::nn::AnyModule(std::make_shared<SpatialConvolutionLayer>(whole, input));
    const int ranks = tensor ? tensor->getSize() : 1;
    return torch::nn::AnyModule(ParallelConv2d(ParallelConv2dOptions(from, to, 3)
                                                   .padding(1)
                                                   .output_channels(number == 1 ? ranks : 1)
                                                   .input_channels(number == 1 ? 1 : ranks),
                                               tensor, whole));
  });
  layers.add("relu" + suffix, [] { return torch::nn::ReLU(); });
  layers.add_layer("pool" + suffix, [=] {
    const torch::nn::MaxPool2dOptions options(2);
    const SpatialImage image{side, input.parts, input.group, /*is_whole=*/false};
    if (image.group)
      return torch::nn::AnyModule(std::make_shared<SpatialMaxPoolLayer>(options, image));
    return torch::nn::AnyModule(torch::nn::MaxPool2d(options));
  });
}

/// Dropout of features that are divided over ranks.
struct DropoutOfPartImpl : torch::nn::Module {
  DropoutOfPartImpl(double p_, std::int64_t features_, ProcessGroup group_)
      : p(p_), features(features_), group(std::move(group_)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    if (!group) return torch::dropout(x, p, is_training());
    return dropout_of_part(x, p, is_training(), 1, features, group);
  }

  double p;
  std::int64_t features;
  ProcessGroup group;
};
TORCH_MODULE(DropoutOfPart);

void add_classifier(Layers& layers, const ModelConfig& config, std::int64_t inputs,
                    const ProcessGroup& group) {
  layers.add("hidden", [=] { return ColumnParallelLinear(inputs, config.hidden, group); });
  layers.add("relu", [] { return torch::nn::ReLU(); });
  if (config.dropout > 0) {
    layers.add("dropout", [=] { return DropoutOfPart(config.dropout, config.hidden, group); });
  }
  layers.add("output",
             [=] { return RowParallelLinear(config.hidden, kFashionMnistClasses, group); });
  layers.add("log_softmax", [] { return torch::nn::LogSoftmax(1); });
}

void add_mlp(Layers& layers, const ModelConfig& config, const LayerGroups& groups) {
  layers.add("flatten", [] { return torch::nn::Flatten(); });
  std::int64_t inputs = kImageSide * kImageSide;
  for (std::int64_t i = 1; i < config.layers - 1; ++i) {
    layers.add("hidden" + std::to_string(i),
               [=] { return torch::nn::Linear(inputs, config.hidden); });
    layers.add("relu" + std::to_string(i), [] { return torch::nn::ReLU(); });
    inputs = config.hidden;
  }
  add_classifier(layers, config, inputs, groups.of("hidden"));
}

void add_convnet(Layers& layers, const ModelConfig& config, const LayerGroups& groups) {
  constexpr std::int64_t kLastSide = kImageSide / 4;
  add_convolution(layers, 1, 1, config.channels, groups);
  add_convolution(layers, 2, config.channels, 2 * config.channels, groups);
  const SpatialImage last{kLastSide, groups.parts, groups.spatial, /*is_whole=*/false};
  layers.add_layer("flatten", [=] {
    if (last.group) return torch::nn::AnyModule(std::make_shared<SpatialFlattenLayer>(last));
    return torch::nn::AnyModule(torch::nn::Flatten());
  });
  add_classifier(layers, config, 2 * config.channels * kLastSide * kLastSide, groups.of("hidden"));
}

constexpr int kStages = 4;

torch::nn::Conv2d make_convolution(std::int64_t from, std::int64_t to, std::int64_t side,
                                   std::int64_t stride) {
  torch::nn::Conv2d convolution(
      torch::nn::Conv2dOptions(from, to, side).stride(stride).padding(side / 2).bias(false));
  torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  return convolution;
}

torch::nn::GroupNormOptions norm_options(const ModelConfig& config, std::int64_t channels) {
  return {config.groups, channels};
}

/// The properties that distinguish a residual block from others of its model.
struct BlockSize {
  std::int64_t from = 0;  ///< Channels.
  std::int64_t to = 0;
  std::int64_t stride = 1;
  std::int64_t side = 0;  ///< Height and width of the input.

  bool has_shortcut() const { return from != to || stride != 1; }
};

/// The channels between the two convolutions may be divided over ranks.
struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(const ModelConfig& config, const BlockSize& size, const ProcessGroup& group) {
    const int ranks = group ? group->getSize() : 1;
    conv1 = register_module(
        "conv1", ParallelConv2d(ParallelConv2dOptions(size.from, size.to, 3)
                                    .stride(size.stride)
                                    .padding(1)
                                    .bias(false)
                                    .output_channels(ranks),
                                group, make_convolution(size.from, size.to, 3, size.stride)));
    norm1 =
        register_module("norm1", ChannelParallelGroupNorm(norm_options(config, size.to), group));
    conv2 = register_module(
        "conv2",
        ParallelConv2d(
            ParallelConv2dOptions(size.to, size.to, 3).padding(1).bias(false).input_channels(ranks),
            group, make_convolution(size.to, size.to, 3, 1)));
    norm2 = register_module("norm2", torch::nn::GroupNorm(norm_options(config, size.to)));
    torch::nn::init::zeros_(norm2->weight);
    if (!size.has_shortcut()) return;
    shortcut = register_module("shortcut", make_convolution(size.from, size.to, 1, size.stride));
    shortcut_norm =
        register_module("shortcut_norm", torch::nn::GroupNorm(norm_options(config, size.to)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = norm2(conv2(torch::relu(norm1(conv1(x)))));
    return torch::relu(y + (shortcut ? shortcut_norm(shortcut(x)) : x));
  }

  ParallelConv2d conv1{nullptr};
  ChannelParallelGroupNorm norm1{nullptr};
  ParallelConv2d conv2{nullptr};
  torch::nn::GroupNorm norm2{nullptr};
  torch::nn::Conv2d shortcut{nullptr};
  torch::nn::GroupNorm shortcut_norm{nullptr};
};

/// The same of images whose space is divided over ranks.
struct SpatialResidualBlockImpl : torch::nn::Module {
  SpatialResidualBlockImpl(const ModelConfig& config, const BlockSize& size,
                           const SpatialImage& image_)
      : image(image_) {
    const auto convolution = [&](const torch::nn::Conv2d& whole) {
      return SpatialConv2d(whole, image.parts, image.group);
    };
    const auto norm = [&] { return ParallelGroupNorm(norm_options(config, size.to), image.group); };
    conv1 =
        register_module("conv1", convolution(make_convolution(size.from, size.to, 3, size.stride)));
    norm1 = register_module("norm1", norm());
    conv2 = register_module("conv2", convolution(make_convolution(size.to, size.to, 3, 1)));
    norm2 = register_module("norm2", norm());
    torch::nn::init::zeros_(norm2->weight);
    if (!size.has_shortcut()) return;
    shortcut = register_module("shortcut",
                               convolution(make_convolution(size.from, size.to, 1, size.stride)));
    shortcut_norm = register_module("shortcut_norm", norm());
  }

  torch::Tensor forward(const torch::Tensor& own) {
    const DividedTensor x = image.divided(own);
    const DividedTensor y = conv1(x);
    const torch::Tensor z = norm2(conv2(y.with(torch::relu(norm1(y.own)))).own);
    return torch::relu(z + (shortcut ? shortcut_norm(shortcut(x).own) : x.own));
  }

  SpatialImage image;
  SpatialConv2d conv1{nullptr};
  ParallelGroupNorm norm1{nullptr};
  SpatialConv2d conv2{nullptr};
  ParallelGroupNorm norm2{nullptr};
  SpatialConv2d shortcut{nullptr};
  ParallelGroupNorm shortcut_norm{nullptr};
};

void add_blocks(Layers& layers, const ModelConfig& config, const LayerGroups& groups) {
  BlockSize size{.from = config.channels, .side = kImageSide};
  std::int64_t number = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    size.to = config.channels << stage;
    for (std::int64_t block = 0; block < config.blocks; ++block) {
      size.stride = stage > 0 && block == 0 ? 2 : 1;
      const bool checkpoint = number < config.checkpoints;
      if (groups.spatial) {
        const SpatialImage image{size.side, groups.parts, groups.spatial, /*is_whole=*/false};
        add_block<SpatialResidualBlockImpl>(layers, number, checkpoint, config, size, image);
      } else {
        add_block<ResidualBlockImpl>(layers, number, checkpoint, config, size,
                                     groups.of("block" + std::to_string(number)));
      }
      size.from = size.to;
      size.side = (size.side + size.stride - 1) / size.stride;
      ++number;
    }
  }
}

// A residual network (He et al., CVPR 2016, table 1, for small images). It has a 3x3 convolution,
// four stages of `blocks` blocks with 1, 2, 4, 8 times `channels`, global average pooling and a
// fully connected layer. Each stage but the first halves the image. Group normalization (Wu and He,
// ECCV 2018) makes the output independent of how a batch is split. The last norm of each block is
// initialized to zero (Goyal et al., arXiv:1706.02677, section 5.1). The blocks are layers; the
// first `checkpoints` of them are checkpointed.
void add_resnet(Layers& layers, const ModelConfig& config, const LayerGroups& groups) {
  const SpatialImage whole{kImageSide, groups.parts, groups.spatial, /*is_whole=*/true};
  layers.add_layer("stem", [=] {
    const torch::nn::Conv2d convolution = make_convolution(1, config.channels, 3, 1);
    if (whole.group)
      return torch::nn::AnyModule(std::make_shared<SpatialConvolutionLayer>(convolution, whole));
    return torch::nn::AnyModule(convolution);
  });
  layers.add("stem_norm",
             [=] { return ParallelGroupNorm(norm_options(config, config.channels), whole.group); });
  layers.add("stem_relu", [] { return torch::nn::ReLU(); });
  add_blocks(layers, config, groups);
  const std::int64_t last_side = (kImageSide + (1 << (kStages - 1)) - 1) >> (kStages - 1);
  const SpatialImage last{last_side, groups.parts, groups.spatial, /*is_whole=*/false};
  layers.add_layer("pool", [=] {
    if (last.group) return torch::nn::AnyModule(std::make_shared<SpatialMeanLayer>(last));
    return torch::nn::AnyModule(torch::nn::AdaptiveAvgPool2d(1));
  });
  layers.add("flatten", [] { return torch::nn::Flatten(); });
  layers.add("output", [=] {
    return torch::nn::Linear(config.channels << (kStages - 1), kFashionMnistClasses);
  });
  layers.add("log_softmax", [] { return torch::nn::LogSoftmax(1); });
}

}  // namespace

void add_image_model(Layers& layers, const ModelConfig& config, const LayerGroups& groups) {
  if (config.name == "resnet") {
    add_resnet(layers, config, groups);
  } else if (config.name == "mlp") {
    add_mlp(layers, config, groups);
  } else {
    add_convnet(layers, config, groups);
  }
}

}  // namespace gradwire::recipe

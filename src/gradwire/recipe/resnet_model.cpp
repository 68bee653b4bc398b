#include "gradwire/recipe/resnet_model.h"

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/train/data_parallel/push_block.h"

namespace gradwire {
namespace {

constexpr int kStages = 4;

torch::nn::Conv2d make_convolution(std::int64_t from, std::int64_t to, std::int64_t side,
                                   std::int64_t stride) {
  torch::nn::Conv2d convolution(
      torch::nn::Conv2dOptions(from, to, side).stride(stride).padding(side / 2).bias(false));
  torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  return convolution;
}

torch::nn::GroupNorm make_norm(const ModelConfig& config, std::int64_t channels) {
  return torch::nn::GroupNorm(torch::nn::GroupNormOptions(config.groups, channels));
}

struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(const ModelConfig& config, std::int64_t from, std::int64_t to,
                    std::int64_t stride) {
    conv1 = register_module("conv1", make_convolution(from, to, 3, stride));
    norm1 = register_module("norm1", make_norm(config, to));
    conv2 = register_module("conv2", make_convolution(to, to, 3, 1));
    norm2 = register_module("norm2", make_norm(config, to));
    torch::nn::init::zeros_(norm2->weight);
    if (from == to && stride == 1) return;
    shortcut = register_module("shortcut", make_convolution(from, to, 1, stride));
    shortcut_norm = register_module("shortcut_norm", make_norm(config, to));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = norm2(conv2(torch::relu(norm1(conv1(x)))));
    return torch::relu(y + (shortcut ? shortcut_norm(shortcut(x)) : x));
  }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::GroupNorm norm1{nullptr};
  torch::nn::Conv2d conv2{nullptr};
  torch::nn::GroupNorm norm2{nullptr};
  torch::nn::Conv2d shortcut{nullptr};
  torch::nn::GroupNorm shortcut_norm{nullptr};
};

void add_blocks(torch::nn::Sequential& model, const ModelConfig& config) {
  std::int64_t from = config.channels;
  std::int64_t number = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    const auto to = config.channels << stage;
    for (std::int64_t block = 0; block < config.blocks; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      push_block<ResidualBlockImpl>(model, number, number < config.checkpoints, config, from, to,
                                    stride);
      from = to;
      ++number;
    }
  }
}

}  // namespace

void add_resnet(torch::nn::Sequential& model, const ModelConfig& config) {
  model->push_back("stem", make_convolution(1, config.channels, 3, 1));
  model->push_back("stem_norm", make_norm(config, config.channels));
  model->push_back("stem_relu", torch::nn::ReLU());
  add_blocks(model, config);
  model->push_back("pool", torch::nn::AdaptiveAvgPool2d(1));
  model->push_back("flatten", torch::nn::Flatten());
  model->push_back("output",
                   torch::nn::Linear(config.channels << (kStages - 1), kFashionMnistClasses));
  model->push_back("log_softmax", torch::nn::LogSoftmax(1));
}

}  // namespace gradwire

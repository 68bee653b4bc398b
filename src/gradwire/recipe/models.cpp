#include "gradwire/recipe/models.h"

#include <cmath>

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/activation/activation_checkpoint.h"

namespace gradwire::recipe {
namespace {

/// Adds a block "blockN". If `checkpoint` is true, its activations are checkpointed. Its parameters
/// and their names are the same either way.
template <class Impl, class... Arguments>
void add_block(Layers& layers, std::int64_t number, bool checkpoint, Arguments... arguments) {
  const auto name = "block" + std::to_string(number);
  if (checkpoint) {
    layers.add(name, [=] { return std::make_shared<CheckpointedImpl<Impl>>(arguments...); });
  } else {
    layers.add(name, [=] { return std::make_shared<Impl>(arguments...); });
  }
}

constexpr std::int64_t kSide = 28;

void add_convolution(Layers& layers, const std::string& number, std::int64_t from,
                     std::int64_t to) {
  layers.add("conv" + number,
             [=] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1)); });
  layers.add("relu" + number, [] { return torch::nn::ReLU(); });
  layers.add("pool" + number, [] { return torch::nn::MaxPool2d(2); });
}

void add_classifier(Layers& layers, const ModelConfig& config, std::int64_t inputs) {
  layers.add("flatten", [] { return torch::nn::Flatten(); });
  layers.add("hidden", [=] { return torch::nn::Linear(inputs, config.hidden); });
  layers.add("relu", [] { return torch::nn::ReLU(); });
  if (config.dropout > 0) {
    layers.add("dropout", [=] { return torch::nn::Dropout(config.dropout); });
  }
  layers.add("output", [=] { return torch::nn::Linear(config.hidden, kFashionMnistClasses); });
  layers.add("log_softmax", [] { return torch::nn::LogSoftmax(1); });
}

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

void add_blocks(Layers& layers, const ModelConfig& config) {
  std::int64_t from = config.channels;
  std::int64_t number = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    const auto to = config.channels << stage;
    for (std::int64_t block = 0; block < config.blocks; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      add_block<ResidualBlockImpl>(layers, number, number < config.checkpoints, config, from, to,
                                   stride);
      from = to;
      ++number;
    }
  }
}

// Adds the layers of a residual network: N x 1 x 28 x 28 images to N x 10 log-probabilities (He et
// al., CVPR 2016, table 1, for small images). It has a 3x3 convolution, four stages of `blocks`
// blocks with 1, 2, 4, 8 times `channels`, global average pooling and a fully connected layer.
// Each stage but the first halves the image. Group normalization (Wu and He, ECCV 2018) makes the
// output independent of how a batch is split. The last norm of each block is initialized to zero
// (Goyal et al., arXiv:1706.02677, section 5.1). The blocks are layers; the first
// `checkpoints` of them are checkpointed.
void add_resnet(Layers& layers, const ModelConfig& config) {
  layers.add("stem", [=] { return make_convolution(1, config.channels, 3, 1); });
  layers.add("stem_norm", [=] { return make_norm(config, config.channels); });
  layers.add("stem_relu", [] { return torch::nn::ReLU(); });
  add_blocks(layers, config);
  layers.add("pool", [] { return torch::nn::AdaptiveAvgPool2d(1); });
  layers.add("flatten", [] { return torch::nn::Flatten(); });
  layers.add("output", [=] {
    return torch::nn::Linear(config.channels << (kStages - 1), kFashionMnistClasses);
  });
  layers.add("log_softmax", [] { return torch::nn::LogSoftmax(1); });
}

constexpr double kDeviation = 0.02;

bool is_gpt(const ModelConfig& config) {
  return config.name == "gpt";
}

torch::nn::Linear make_linear(const ModelConfig& config, std::int64_t inputs, std::int64_t outputs,
                              double deviation) {
  torch::nn::Linear linear(torch::nn::LinearOptions(inputs, outputs).bias(is_gpt(config)));
  torch::nn::init::normal_(linear->weight, 0, deviation);
  if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
  return linear;
}

torch::nn::LayerNorm make_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

/// N x T bytes to N x T x width: character embedding plus position embedding.
struct EmbeddingImpl : torch::nn::Module {
  explicit EmbeddingImpl(const ModelConfig& config) : dropout(config.dropout) {
    character = register_module("character", torch::nn::Embedding(config.vocabulary, config.width));
    position = register_parameter("position", torch::empty({config.context, config.width}));
    torch::nn::init::normal_(character->weight, 0, kDeviation);
    torch::nn::init::normal_(position, 0, kDeviation);
  }

  torch::Tensor forward(const torch::Tensor& bytes) {
    const auto x = character(bytes) + position.narrow(0, 0, bytes.size(1));
    return torch::dropout(x, dropout, is_training());
  }

  double dropout;
  torch::nn::Embedding character{nullptr};
  torch::Tensor position;
};
TORCH_MODULE(Embedding);

/// Causal self-attention: each position attends to itself and earlier ones.
struct AttentionImpl : torch::nn::Module {
  AttentionImpl(const ModelConfig& config, double residual_deviation) : heads(config.heads) {
    const auto width = config.width;
    query_key_value =
        register_module("query_key_value", make_linear(config, width, 3 * width, kDeviation));
    output = register_module("output", make_linear(config, width, width, residual_deviation));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto split = query_key_value(x).view({x.size(0), x.size(1), 3, heads, -1});
    const auto parts = split.permute({2, 0, 3, 1, 4}).unbind(0);  // Each N x heads x T x part.
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0,
                                                        /*is_causal=*/true);
    return output(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  std::int64_t heads;
  torch::nn::Linear query_key_value{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(Attention);

struct DecoderBlockImpl : torch::nn::Module {
  explicit DecoderBlockImpl(const ModelConfig& config) : dropout(config.dropout) {
    const auto width = config.width;
    const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
    norm1 = register_module("norm1", make_norm(width));
    attention = register_module("attention", Attention(config, residual));
    norm2 = register_module("norm2", make_norm(width));
    up = register_module("up", make_linear(config, width, 4 * width, kDeviation));
    down = register_module("down", make_linear(config, 4 * width, width, residual));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = x + drop(attention(norm1(x)));
    return y + drop(down(torch::gelu(up(norm2(y)), "tanh")));
  }

  torch::Tensor drop(const torch::Tensor& x) const {
    return torch::dropout(x, dropout, is_training());
  }

  double dropout;
  torch::nn::LayerNorm norm1{nullptr};
  Attention attention{nullptr};
  torch::nn::LayerNorm norm2{nullptr};
  torch::nn::Linear up{nullptr};
  torch::nn::Linear down{nullptr};
};

/// N x T x width to N x vocabulary x T: classes along dimension 1, as losses expect.
struct CharacterHeadImpl : torch::nn::Module {
  explicit CharacterHeadImpl(const ModelConfig& config) {
    norm = register_module("norm", make_norm(config.width));
    output = register_module(
        "output",
        torch::nn::Linear(torch::nn::LinearOptions(config.width, config.vocabulary).bias(false)));
    torch::nn::init::normal_(output->weight, 0, kDeviation);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::log_softmax(output(norm(x)), -1).transpose(1, 2);
  }

  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(CharacterHead);

// Adds the layers of a causal transformer: N x T bytes (int64) to N x vocabulary x T
// log-probabilities of the next byte. Architecture: Vaswani et al., NeurIPS 2017, with pre-layer
// normalization (Xiong et al., ICML 2020, figure 1b), learned positions and no biases (Chowdhery
// et al., arXiv:2204.02311, section 2). Weights are initialized as in GPT-2: standard deviation
// 0.02, divided by sqrt(2 layers) at the end of residual branches (Radford et al., 2019, section
// 2.3).
//
// With the name "gpt", the model is GPT-2's: it has biases (initialized to zero), and dropout
// after the embedding and at the end of residual branches. Embedding and output do not share
// weights. The blocks are layers "blockN"; the first `checkpoints` of them are
// checkpointed.
void add_transformer(Layers& layers, const ModelConfig& config) {
  layers.add("embedding", [=] { return Embedding(config); });
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    add_block<DecoderBlockImpl>(layers, layer, layer < config.checkpoints, config);
  }
  layers.add("head", [=] { return CharacterHead(config); });
}

}  // namespace

Layers make_layers(const ModelConfig& config) {
  initialize_vector_math();
  Layers layers;
  if (config.name == "transformer" || config.name == "gpt") {
    add_transformer(layers, config);
  } else if (config.name == "resnet") {
    add_resnet(layers, config);
  } else if (config.name == "mlp") {
    add_classifier(layers, config, kSide * kSide);
  } else {
    add_convolution(layers, "1", 1, config.channels);
    add_convolution(layers, "2", config.channels, 2 * config.channels);
    add_classifier(layers, config, 2 * config.channels * (kSide / 4) * (kSide / 4));
  }
  return layers;
}

torch::nn::Sequential make_model(const ModelConfig& config) {
  const Layers layers = make_layers(config);
  torch::nn::Sequential model;
  for (std::size_t i = 0; i < layers.size(); ++i) model->push_back(layers.name(i), layers.make(i));
  return model;
}

}  // namespace gradwire::recipe

#include "gradwire/recipe/text_model.h"

#include <cmath>

#include "gradwire/train/data_parallel/push_block.h"

namespace gradwire {
namespace {

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

}  // namespace

void add_transformer(torch::nn::Sequential& model, const ModelConfig& config) {
  model->push_back("embedding", Embedding(config));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    push_block<DecoderBlockImpl>(model, layer, layer < config.checkpoints, config);
  }
  model->push_back("head", CharacterHead(config));
}

}  // namespace gradwire

#include <cmath>

#include "gradwire/recipe/model_layers.h"
#include "gradwire/train/parallel/parallel_embedding.h"
#include "gradwire/train/parallel/parallel_linear.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire::recipe {
namespace {

constexpr double kDeviation = 0.02;

bool is_gpt(const ModelConfig& config) {
  return config.name == "gpt";
}

torch::nn::Linear make_linear(bool bias, std::int64_t inputs, std::int64_t outputs,
                              double deviation) {
  torch::nn::Linear linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
  torch::nn::init::normal_(linear->weight, 0, deviation);
  if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
  return linear;
}

ColumnParallelLinear make_columns(const ModelConfig& config, std::int64_t outputs,
                                  std::int64_t blocks, const ProcessGroup& group) {
  return ColumnParallelLinear(
      ColumnParallelLinearOptions(config.width, outputs).bias(is_gpt(config)).blocks(blocks), group,
      make_linear(is_gpt(config), config.width, outputs, kDeviation));
}

/// At the end of a residual branch.
RowParallelLinear make_rows(const ModelConfig& config, std::int64_t inputs,
                            const ProcessGroup& group) {
  const double deviation = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  return RowParallelLinear(RowParallelLinearOptions(inputs, config.width).bias(is_gpt(config)),
                           group, make_linear(is_gpt(config), inputs, config.width, deviation));
}

torch::nn::LayerNorm make_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

/// N x T bytes to N x T x width: character embedding plus position embedding.
struct EmbeddingImpl : torch::nn::Module {
  EmbeddingImpl(const ModelConfig& config, const ProcessGroup& group) : dropout(config.dropout) {
    torch::nn::Embedding whole(config.vocabulary, config.width);
    position = torch::empty({config.context, config.width});
    torch::nn::init::normal_(whole->weight, 0, kDeviation);
    torch::nn::init::normal_(position, 0, kDeviation);
    character = register_module(
        "character",
        ParallelEmbedding(ParallelEmbeddingOptions(config.vocabulary, config.width), group, whole));
    position = register_parameter("position", position);
  }

  torch::Tensor forward(const torch::Tensor& bytes) {
    const auto x = character(bytes) + position.narrow(0, 0, bytes.size(1));
    return torch::dropout(x, dropout, is_training());
  }

  double dropout;
  ParallelEmbedding character{nullptr};
  torch::Tensor position;
};
TORCH_MODULE(Embedding);

/// Causal self-attention: each position attends to itself and earlier ones. A rank has whole heads.
struct AttentionImpl : torch::nn::Module {
  AttentionImpl(const ModelConfig& config, const ProcessGroup& group)
      : heads(equal_part("attention heads", config.heads, group)) {
    query_key_value =
        register_module("query_key_value", make_columns(config, 3 * config.width, 3, group));
    output = register_module("output", make_rows(config, config.width, group));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto split = query_key_value(x).view({x.size(0), x.size(1), 3, heads, -1});
    const auto parts = split.permute({2, 0, 3, 1, 4}).unbind(0);  // Each N x heads x T x part.
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0,
                                                        /*is_causal=*/true);
    return output(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
  }

  std::int64_t heads;  ///< Heads of this rank.
  ColumnParallelLinear query_key_value{nullptr};
  RowParallelLinear output{nullptr};
};
TORCH_MODULE(Attention);

struct DecoderBlockImpl : torch::nn::Module {
  DecoderBlockImpl(const ModelConfig& config, const ProcessGroup& heads, const ProcessGroup& mlp)
      : dropout(config.dropout) {
    const auto width = config.width;
    norm1 = register_module("norm1", make_norm(width));
    attention = register_module("attention", Attention(config, heads));
    norm2 = register_module("norm2", make_norm(width));
    up = register_module("up", make_columns(config, 4 * width, 1, mlp));
    down = register_module("down", make_rows(config, 4 * width, mlp));
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
  ColumnParallelLinear up{nullptr};
  RowParallelLinear down{nullptr};
};

/// N x T x width to N x vocabulary x T: classes along dimension 1, as losses expect.
struct CharacterHeadImpl : torch::nn::Module {
  CharacterHeadImpl(const ModelConfig& config, ProcessGroup group_)
      : group(std::move(group_)), vocabulary(config.vocabulary) {
    norm = register_module("norm", make_norm(config.width));
    output = register_module(
        "output", ColumnParallelLinear(
                      ColumnParallelLinearOptions(config.width, config.vocabulary).bias(false),
                      group, make_linear(false, config.width, config.vocabulary, kDeviation)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor logits = output(norm(x));
    if (group) {
      if (is_training()) return logits;
      logits = gather_over_ranks(logits, logits.dim() - 1, vocabulary, group);
    }
    return torch::log_softmax(logits, -1).transpose(1, 2);
  }

  ProcessGroup group;
  std::int64_t vocabulary;
  torch::nn::LayerNorm norm{nullptr};
  ColumnParallelLinear output{nullptr};
};
TORCH_MODULE(CharacterHead);

}  // namespace

void add_text_model(Layers& layers, const ModelConfig& config, const LayerGroups& groups) {
  layers.add("embedding",
             [config, group = groups.of("embedding")] { return Embedding(config, group); });
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "block" + std::to_string(layer);
    add_block<DecoderBlockImpl>(layers, layer, layer < config.checkpoints, config,
                                groups.of(name + ".attention"), groups.of(name + ".mlp"));
  }
  layers.add("head", [config, group = groups.of("head")] { return CharacterHead(config, group); });
  if (config.tie_word_embeddings) layers.tie("embedding.character.weight", "head.output.weight");
}

}  // namespace gradwire::recipe

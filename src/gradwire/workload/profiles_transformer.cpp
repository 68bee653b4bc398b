#include <fmt/format.h>

#include "gradwire/workload/profiles_builder.h"

namespace gradwire::workload {
namespace {

constexpr int kLayers = 12;
constexpr int kFeedForward = 4;  ///< Hidden size per width.

/// The two families differ in names and in the memory layout of weights.
struct Names {
  const char *layer, *norm1, *in, *out, *norm2, *up, *down;
  bool transposed;  ///< Weights are input x output.
};

constexpr Names kViT{"encoder.layers.encoder_layer_{}",
                     "ln_1",
                     "self_attention.in_proj",
                     "self_attention.out_proj",
                     "ln_2",
                     "mlp.0",
                     "mlp.3",
                     false};
constexpr Names kGpt2{"transformer.h.{}", "ln_1",       "attn.c_attn", "attn.c_proj", "ln_2",
                      "mlp.c_fc",         "mlp.c_proj", true};

struct Transformer {
  ProfileBuilder builder;
  const Names& names;
  int width = 0;
  int tokens = 0;
};

/// y = W x + b, after the normalization `norm` if there is one. `extra`: multiplications of the
/// parameterless computation before it.
void add_linear(Transformer& model, const std::string& name, const std::string& norm, int from,
                int to, double extra = 0) {
  std::vector<ProfileTensor> parameters;
  if (!norm.empty()) {
    parameters.push_back(weight(norm, {from}));
    parameters.push_back(bias(norm, from));
  }
  // torch's MultiheadAttention names these differently.
  const bool packed = name.ends_with("in_proj");
  const char joint = packed ? '_' : '.';
  const std::vector<std::int64_t> shape = model.names.transposed
                                              ? std::vector<std::int64_t>{from, to}
                                              : std::vector<std::int64_t>{to, from};
  parameters.push_back({fmt::format("{}{}weight", name, joint), shape});
  parameters.push_back({fmt::format("{}{}bias", name, joint), {to}});
  model.builder.add(name, std::move(parameters),
                    static_cast<double>(model.tokens) * from * to + extra);
}

/// Attention and feed-forward network, each after a normalization and with a shortcut (Vaswani et
/// al., NeurIPS 2017, section 3; the order of Radford et al., 2019).
void add_layer(Transformer& model, int number) {
  const Names& n = model.names;
  const int width = model.width;
  const std::string layer = fmt::format(fmt::runtime(n.layer), number) + ".";
  const double tokens = model.tokens;
  const double scores = 2 * tokens * tokens * width;  // Queries by keys, and weights by values.
  add_linear(model, layer + n.in, layer + n.norm1, width, 3 * width);
  add_linear(model, layer + n.out, "", width, width, scores);
  add_linear(model, layer + n.up, layer + n.norm2, width, kFeedForward * width);
  add_linear(model, layer + n.down, "", kFeedForward * width, width);
}

}  // namespace

CountedProfile vit_profile(const std::string& name, int width) {
  constexpr int patch = 16, patches = (224 / patch) * (224 / patch), channels = 3, classes = 1000;
  Transformer model{ProfileBuilder(name), kViT, width, patches + 1};
  model.builder.add("embedding",
                    {{"class_token", {1, 1, width}},
                     weight("conv_proj", {width, channels, patch, patch}),
                     bias("conv_proj", width),
                     {"encoder.pos_embedding", {1, patches + 1, width}}},
                    static_cast<double>(patches) * width * channels * patch * patch);
  for (int i = 0; i < kLayers; ++i) add_layer(model, i);
  model.builder.add("heads.head",
                    {weight("encoder.ln", {width}), bias("encoder.ln", width),
                     weight("heads.head", {classes, width}), bias("heads.head", classes)},
                    static_cast<double>(classes) * width);
  return model.builder.finish();
}

CountedProfile gpt2_profile() {
  constexpr int width = 768, tokens = 1024, vocabulary = 50257;
  Transformer model{ProfileBuilder("gpt2"), kGpt2, width, tokens};
  model.builder.add(
      "embedding",
      {weight("transformer.wte", {vocabulary, width}), weight("transformer.wpe", {tokens, width})},
      0);
  for (int i = 0; i < kLayers; ++i) add_layer(model, i);
  model.builder.add("lm_head",
                    {weight("transformer.ln_f", {width}), bias("transformer.ln_f", width)},
                    static_cast<double>(tokens) * width * vocabulary);
  return model.builder.finish();
}

}  // namespace gradwire::workload

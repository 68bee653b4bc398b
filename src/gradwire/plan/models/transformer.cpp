#include <fmt/format.h>

#include "gradwire/plan/models/built_in.h"

namespace gradwire::plan {
namespace {

constexpr int kPatch = 16, kPatches = (224 / kPatch) * (224 / kPatch), kClasses = 1000;

/// Returns the specification with its derived members set.
TransformerSpec completed(TransformerSpec spec) {
  if (spec.feed_forward == 0) spec.feed_forward = 4 * spec.width;
  if (spec.key_heads == 0) spec.key_heads = spec.heads;
  if (spec.image) {
    spec.tokens = spec.positions = kPatches + 1;
    spec.vocabulary = kClasses;
  }
  return spec;
}

bool like_gpt2(const TransformerSpec& spec) {
  return !spec.llama && !spec.bert && !spec.image && spec.feed_forward == 4 * spec.width;
}

std::int64_t norm_parameters(const TransformerSpec& spec) {
  return std::int64_t{spec.llama ? 1 : 2} * spec.width;
}

/// Parameters of y = W x + b.
std::int64_t linear(const TransformerSpec& spec, std::int64_t from, std::int64_t to) {
  return from * to + (spec.llama ? 0 : to);
}

double dropout_kept(const TransformerSpec& spec) {
  return spec.llama ? 0 : 0.5;  // Dropout's mask: one byte, half an element.
}

ModelLayer embedding(const TransformerSpec& spec) {
  const std::int64_t width = spec.width;
  ModelLayer layer{.name = "embedding", .outputs = static_cast<double>(width * spec.tokens)};
  layer.parameters = width * spec.positions;
  if (spec.image) {
    const std::int64_t pixels = 3 * kPatch * kPatch;
    layer.parameters += linear(spec, pixels, width) + width;  // And the class token.
    layer.flops = 2.0 * kPatches * static_cast<double>(pixels * width);
  } else {
    layer.parameters += width * spec.vocabulary;
  }
  if (spec.bert) layer.parameters += 2 * width + norm_parameters(spec);
  return layer;
}

/// Queries, keys and values, scores, the weighted sum of values, and a projection.
ModelLayer attention(const TransformerSpec& spec, int number) {
  const std::int64_t width = spec.width;
  const std::int64_t keys = width / spec.heads * spec.key_heads;
  const double tokens = spec.tokens, wide = static_cast<double>(width);
  const double weights = static_cast<double>(2 * width * width + 2 * width * keys);
  const double per_token = 4 + 2.0 * static_cast<double>(keys) / wide + dropout_kept(spec);
  return {.name = fmt::format("layers.{}.attention", number),
          .parameters = norm_parameters(spec) + linear(spec, width, width + 2 * keys) +
                        linear(spec, width, width),
          .flops = 2 * tokens * weights + 4 * tokens * tokens * wide,
          .outputs = tokens * wide,
          .kept = tokens * wide * per_token};
}

ModelLayer feed_forward(const TransformerSpec& spec, int number) {
  const std::int64_t width = spec.width, middle = spec.feed_forward;
  const int up = spec.llama ? 2 : 1;
  const double tokens = spec.tokens, wide = static_cast<double>(width);
  const double weights = static_cast<double>((up + 1) * width * middle);
  return {.name = fmt::format("layers.{}.feed_forward", number),
          .parameters = norm_parameters(spec) + up * linear(spec, width, middle) +
                        linear(spec, middle, width),
          .flops = 2 * tokens * weights,
          .outputs = tokens * wide,
          .kept = tokens * ((2 + dropout_kept(spec)) * wide + (up + 1.0) * spec.feed_forward)};
}

ModelLayer output(const TransformerSpec& spec) {
  const std::int64_t width = spec.width;
  ModelLayer layer{.name = spec.bert ? "pooler" : "output"};
  if (spec.bert) {
    layer.parameters = linear(spec, width, width);
    layer.flops = 2.0 * static_cast<double>(width * width);
    layer.outputs = layer.kept = static_cast<double>(width);
    return layer;
  }
  const double places = spec.image ? 1 : spec.tokens;
  layer.parameters = norm_parameters(spec);
  if (spec.llama || spec.image) layer.parameters += linear(spec, width, spec.vocabulary);
  layer.flops = 2.0 * places * static_cast<double>(width * spec.vocabulary);
  layer.outputs = places * spec.vocabulary;
  layer.kept = 2 * layer.outputs;  // The loss keeps its input and the probabilities.
  return layer;
}

}  // namespace

ModelShape transformer_model(const TransformerSpec& given) {
  const TransformerSpec spec = completed(given);
  ModelShape model{.name = spec.name,
                   .sample = fmt::format("sequence of {} tokens", spec.tokens),
                   .tokens = static_cast<double>(spec.tokens),
                   .sample_bytes = (spec.vocabulary <= 65536 ? 2.0 : 4.0) * spec.tokens,
                   .transformer = {spec.layers, spec.width, spec.heads, spec.tokens,
                                   like_gpt2(spec) ? spec.vocabulary : 0}};
  if (spec.image) {
    model.sample = "image of 224 x 224";
    model.sample_bytes = 108e3;  // Mean JPEG image of ImageNet.
    model.tokens = 1;
  }
  model.layers.push_back(embedding(spec));
  for (int i = 0; i < spec.layers; ++i) {
    model.layers.push_back(attention(spec, i));
    model.layers.push_back(feed_forward(spec, i));
  }
  model.layers.push_back(output(spec));
  set_shares(model);
  return model;
}

}  // namespace gradwire::plan

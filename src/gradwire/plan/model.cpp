#include "gradwire/plan/model.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire::plan {
namespace {

constexpr std::array<std::pair<char, double>, 4> kUnits{
    {{'T', 1e12}, {'B', 1e9}, {'M', 1e6}, {'K', 1e3}}};

}  // namespace

std::int64_t ModelShape::parameters() const {
  std::int64_t count = 0;
  for (const ModelLayer& layer : layers) count += layer.parameters;
  return count;
}

double ModelShape::forward_flops() const {
  double flops = 0;
  for (const ModelLayer& layer : layers) flops += layer.flops;
  return flops;
}

double ModelShape::kept() const {
  double elements = 0;
  for (const ModelLayer& layer : layers) elements += layer.kept;
  return elements;
}

void set_shares(ModelShape& model) {
  const double total = 3 * model.forward_flops();
  for (ModelLayer& layer : model.layers) {
    layer.forward = layer.flops / total;
    layer.backward = 2 * layer.flops / total;
  }
}

ModelShape with_blocks(ModelShape model) {
  std::vector<ModelLayer> layers;
  for (ModelLayer& layer : model.layers) {
    const bool ends_block = layer.name.ends_with(".feed_forward") && !layers.empty() &&
                            layers.back().name.ends_with(".attention");
    if (!ends_block) {
      layers.push_back(std::move(layer));
      continue;
    }
    ModelLayer& block = layers.back();
    const std::size_t number = block.name.find('.') + 1;  // "layers.7.attention"
    block.name = "block" + block.name.substr(number, block.name.find('.', number) - number);
    block.parameters += layer.parameters;
    block.flops += layer.flops;
    block.forward += layer.forward;
    block.backward += layer.backward;
    block.outputs = layer.outputs;
    block.cut = layer.cut;
    block.kept += layer.kept;
  }
  model.layers = std::move(layers);
  return model;
}

ModelShape model_of(const workload::LayerProfile& profile) {
  ModelShape model{.name = profile.name};
  model.recorded_seconds = std::chrono::duration<double>(profile.compute).count();
  for (const workload::ProfileLayer& recorded : profile.layers) {
    ModelLayer layer{.name = recorded.name};
    for (const workload::ProfileTensor& tensor : recorded.parameters)
      layer.parameters += static_cast<std::int64_t>(tensor.count());
    layer.forward = recorded.forward;
    layer.backward = recorded.backward;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

workload::LayerProfile profile_of(const ModelShape& model) {
  workload::LayerProfile profile{.name = model.name};
  for (const ModelLayer& layer : model.layers) {
    workload::ProfileLayer& added = profile.layers.emplace_back();
    added.name = layer.name;
    if (layer.parameters > 1) added.parameters = {{layer.name, {2, layer.parameters / 2}}};
    added.forward = layer.forward;
    added.backward = layer.backward;
  }
  return profile;
}

ModelShape model_of_size(double parameters) {
  constexpr int kLayers = 32, kTokens = 2048;
  ModelShape model{.name = "a model",
                   .sample = fmt::format("{} tokens", kTokens),
                   .tokens = kTokens,
                   .sample_bytes = 2.0 * kTokens};
  auto left = static_cast<std::int64_t>(std::llround(parameters));
  for (int i = 0; i < kLayers; ++i) {
    const std::int64_t here = left / (kLayers - i);
    left -= here;
    model.layers.push_back({.name = fmt::format("layers.{}", i),
                            .parameters = here,
                            .flops = 2.0 * kTokens * static_cast<double>(here)});
  }
  set_shares(model);
  return model;
}

double parse_count(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  double factor = unit.empty() ? 1 : 0;
  for (const auto& [letter, power] : kUnits) {
    if (unit.size() == 1 && std::toupper(static_cast<unsigned char>(unit[0])) == letter)
      factor = power;
  }
  if (error != std::errc{} || factor == 0 || !(value * factor >= 1) || value * factor > 1e15) {
    refuse(
        "\"{}\": expected a number of parameters from 1 to 10^15, as in "
        "\"7.5B\", \"350M\" or \"25557032\"",
        text);
  }
  return value * factor;
}

std::string format_count(double count) {
  for (const auto& [letter, power] : kUnits) {
    if (count >= 0.9995 * power) return fmt::format("{:.3g} {}", count / power, letter);
  }
  return fmt::format("{:.0f}", count);
}

}  // namespace gradwire::plan

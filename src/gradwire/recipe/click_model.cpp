#include "gradwire/recipe/click_model.h"

#include <limits>
#include <span>

#include "gradwire/base/check.h"
#include "gradwire/data/click_through.h"
#include "gradwire/recipe/model_layers.h"
#include "gradwire/servers/row_store.h"

namespace gradwire::recipe {
namespace {

std::uint64_t draw_seed() {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::uint64_t>(torch::randint(kMax, {1}, torch::kInt64).item<std::int64_t>());
}

torch::nn::Embedding make_table(const ModelConfig& config, std::uint64_t seed) {
  torch::Tensor rows = torch::empty({config.rows, config.width});
  const std::span<float> all(rows.data_ptr<float>(), static_cast<std::size_t>(rows.numel()));
  const auto width = static_cast<std::size_t>(config.width);
  for (std::int64_t id = 0; id < config.rows; ++id) {
    servers::initial_row(seed, id, all.subspan(static_cast<std::size_t>(id) * width, width));
  }
  return torch::nn::Embedding::from_pretrained(
      rows, torch::nn::EmbeddingFromPretrainedOptions().freeze(false));
}

/// N x vectors x width to N x (width + pairs): the first vector, and the dot product of each pair.
struct InteractionsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& vectors) {
    const auto products = torch::bmm(vectors, vectors.transpose(1, 2));
    const auto pairs = torch::tril_indices(vectors.size(1), vectors.size(1), -1);
    return torch::cat(
        {vectors.select(1, 0), products.index({torch::indexing::Slice(), pairs[0], pairs[1]})}, 1);
  }
};
TORCH_MODULE(Interactions);

}  // namespace

ClickFeaturesImpl::ClickFeaturesImpl(const ModelConfig& config)
    : dense_(config.dense), seed_(draw_seed()) {
  bottom_ = register_module(
      "bottom",
      torch::nn::Sequential(torch::nn::Linear(config.dense, config.hidden), torch::nn::ReLU(),
                            torch::nn::Linear(config.hidden, config.width), torch::nn::ReLU()));
  if (config.rows_are_served) return;
  rows_ = [table = register_module("embedding", make_table(config, seed_))](
              const torch::Tensor& ids) { return table->forward(ids); };
}

torch::Tensor ClickFeaturesImpl::ids_of(const torch::Tensor& features) const {
  return features.narrow(1, dense_, features.size(1) - dense_).to(torch::kInt64);
}

torch::Tensor ClickFeaturesImpl::forward(const torch::Tensor& features) {
  const auto dense = bottom_->forward(features.narrow(1, 0, dense_).to(torch::kFloat32));
  const auto rows = rows_(ids_of(features));
  return torch::cat({dense.unsqueeze(1), rows}, 1);
}

ClickFeaturesImpl& click_features(torch::nn::Sequential& model) {
  auto* const layer = dynamic_cast<ClickFeaturesImpl*>((*model->begin()).ptr().get());
  GRADWIRE_CHECK(layer != nullptr);
  return *layer;
}

void add_click_model(Layers& layers, const ModelConfig& config) {
  const std::int64_t vectors = 1 + config.fields;
  const std::int64_t inputs = config.width + vectors * (vectors - 1) / 2;
  layers.add("features", [config] { return ClickFeatures(config); });
  layers.add("interactions", [] { return Interactions(); });
  layers.add("hidden", [=] { return torch::nn::Linear(inputs, config.hidden); });
  layers.add("relu", [] { return torch::nn::ReLU(); });
  layers.add("output", [=] { return torch::nn::Linear(config.hidden, kClickClasses); });
  layers.add("log_softmax", [] { return torch::nn::LogSoftmax(1); });
}

}  // namespace gradwire::recipe

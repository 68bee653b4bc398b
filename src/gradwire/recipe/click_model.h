#pragma once

#include <cstdint>
#include <functional>

#include <torch/torch.h>

#include "gradwire/recipe/models.h"

namespace gradwire::recipe {

/// The first layer of "dlrm": N x (dense + fields) features to N x (1 + fields) x width float32.
/// The first vector is what the bottom MLP makes of the dense features, the others are the rows of
/// the ids in an embedding table.
class ClickFeaturesImpl : public torch::nn::Module {
 public:
  /// Draws the seed of the table's rows from torch's default generator, and makes the table, unless
  /// servers have its rows.
  explicit ClickFeaturesImpl(const ModelConfig& config);

  torch::Tensor forward(const torch::Tensor& features);

  /// Returns the ids of a batch of features, N x fields.
  torch::Tensor ids_of(const torch::Tensor& features) const;
  /// The seed from which initial_row() makes the rows.
  std::uint64_t seed() const { return seed_; }
  /// Takes the rows of ids from elsewhere: N x fields to N x fields x width.
  void take_rows(std::function<torch::Tensor(const torch::Tensor&)> rows) {
    rows_ = std::move(rows);
  }

 private:
  std::int64_t dense_;
  std::uint64_t seed_;
  torch::nn::Sequential bottom_{nullptr};
  std::function<torch::Tensor(const torch::Tensor&)> rows_;
};
TORCH_MODULE(ClickFeatures);

/// Returns that layer of a model.
ClickFeaturesImpl& click_features(torch::nn::Sequential& model);

}  // namespace gradwire::recipe

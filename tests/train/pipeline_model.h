#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include "gradwire/train/named_tensor.h"
#include "gradwire/train/pipeline/pipeline.h"

namespace gradwire::test {

/// A small model of eight layers; with dropout if asked. The same initial values on every call.
inline Layers pipeline_layers(double dropout = 0) {
  Layers layers;
  layers.add("input", [] { return torch::nn::Linear(5, 8); });
  for (int i = 0; i < 3; ++i) {
    layers.add(fmt::format("block{}", i), [] {
      return torch::nn::Sequential(torch::nn::Linear(8, 12), torch::nn::GELU(),
                                   torch::nn::Linear(12, 8));
    });
    layers.add(fmt::format("norm{}", i), [dropout] {
      return torch::nn::Sequential(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                                   torch::nn::Dropout(torch::nn::DropoutOptions(dropout)));
    });
  }
  layers.add("output", [] { return torch::nn::Linear(8, 3); });
  return layers;
}

/// Inputs and classes of a step.
struct PipelineBatch {
  torch::Tensor inputs, targets;
};
inline PipelineBatch pipeline_batch(std::int64_t samples, std::int64_t step) {
  const auto values = torch::arange(samples * 5, torch::kFloat32).view({samples, 5});
  return {torch::sin(values * 0.7 + static_cast<double>(step)),
          (torch::arange(samples) + step).remainder(3)};
}

inline std::unique_ptr<torch::optim::Optimizer> pipeline_adam(
    std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                              torch::optim::AdamOptions(0.01));
}

inline Pipeline::Options pipeline_options(const ProcessGroup& group, const std::string& schedule,
                                          int micro_batches) {
  return {.process_group = group,
          .micro_batches = micro_batches,
          .schedule = schedule,
          .optimizer = pipeline_adam,
          .loss = cross_entropy_sum(),
          .seed = 3};
}

using NamedValues = std::map<std::string, torch::Tensor>;

/// Copies of a rank's parameters by name, and of its optimizer states.
inline NamedValues state_values(Pipeline& model) {
  NamedValues values;
  for (const TensorPiece& piece : model.pieces(false)) values[piece.name] = piece.data.clone();
  return values;
}

}  // namespace gradwire::test

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {

/// Sums over ranks, for the next layer: replicated (all-reduce), or this rank's part along
/// `sequence_dimension` (reduce-scatter). Throws Exception(invalid_argument), on behalf of `who`,
/// if that dimension does not divide.
torch::Tensor sum_for_sequence(std::string_view who, const torch::Tensor& partial,
                               std::optional<std::int64_t> sequence_dimension,
                               const ProcessGroup& group);

/// copy_to_ranks() of several parameters with one all-reduce in backward. Undefined ones stay so.
std::vector<torch::Tensor> copy_together(const std::vector<torch::Tensor>& parameters,
                                         const ProcessGroup& group);

/// torch::nn::LayerNorm in a sequence-parallel part of a model, where each rank has other tokens:
/// the gradients of weight and bias are summed over ranks, so that they stay replicated. Normalizes
/// over the last dimensions, as torch::nn::LayerNorm does; no communication forward.
class SequenceParallelLayerNormImpl : public ParallelModule {
 public:
  SequenceParallelLayerNormImpl(const torch::nn::LayerNormOptions& options,
                                const ProcessGroup& group);

  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::LayerNormOptions options;
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(SequenceParallelLayerNorm);

}  // namespace gradwire

#include "gradwire/train/parallel/sequence_parallel.h"

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire {

torch::Tensor sum_for_sequence(std::string_view who, const torch::Tensor& partial,
                               std::optional<std::int64_t> sequence_dimension,
                               const ProcessGroup& group) {
  if (!sequence_dimension) return sum_over_ranks(partial, group);
  const auto tokens = partial.size(*sequence_dimension);
  if (tokens % group->getSize() != 0) {
    refuse(
        "{}: {} tokens in dimension {} cannot be divided equally over {} ranks; sequence "
        "parallelism requires that",
        who, tokens, *sequence_dimension, group->getSize());
  }
  return reduce_scatter_over_ranks(partial, *sequence_dimension, group);
}

std::vector<torch::Tensor> copy_together(const std::vector<torch::Tensor>& parameters,
                                         const ProcessGroup& group) {
  if (group->getSize() == 1) return parameters;
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : parameters) {
    if (parameter.defined()) flat.push_back(parameter.reshape({-1}));
  }
  if (flat.empty()) return parameters;
  const auto copy = copy_to_ranks(torch::cat(flat), group);
  std::vector<torch::Tensor> copies;
  std::int64_t offset = 0;
  for (const auto& parameter : parameters) {
    if (!parameter.defined()) {
      copies.emplace_back();
      continue;
    }
    copies.push_back(copy.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
  return copies;
}

SequenceParallelLayerNormImpl::SequenceParallelLayerNormImpl(
    const torch::nn::LayerNormOptions& options_, const ProcessGroup& group)
    : ParallelModule(group), options(options_) {
  const torch::nn::LayerNorm plain(options);
  weight = register_parameter("weight", plain->weight);
  bias = register_parameter("bias", plain->bias);
}

torch::Tensor SequenceParallelLayerNormImpl::forward(const torch::Tensor& input) {
  const auto affine = copy_together({weight, bias}, group());
  return torch::layer_norm(input, options.normalized_shape(), affine[0], affine[1], options.eps());
}

}  // namespace gradwire

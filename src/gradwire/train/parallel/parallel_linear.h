#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {

/// Options of a ColumnParallelLinear.
struct ColumnParallelLinearOptions {
  ColumnParallelLinearOptions(std::int64_t in, std::int64_t out)
      : in_features_(in), out_features_(out) {}

  TORCH_ARG(std::int64_t, in_features);
  TORCH_ARG(std::int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
  /// The output features are this many equal blocks, one after the other (3: query, key and value),
  /// each of which is divided. This rank's output has its part of each. Not with gather_output.
  TORCH_ARG(std::int64_t, blocks) = 1;
  /// Returns all features, replicated, in place of this rank's.
  TORCH_ARG(bool, gather_output) = false;
  /// Sequence parallelism: the input is divided into equal parts along this dimension (not the
  /// last), and is gathered.
  TORCH_ARG(std::optional<std::int64_t>, sequence_dimension) = std::nullopt;
};

/// torch::nn::Linear whose output features are divided over ranks (rows of `weight`; Shoeybi et
/// al., arXiv:1909.08053). Input: [..., in], replicated; output: [..., own part of out]. Features
/// need not divide. The layer takes its part of `initial`, which has the options' features; by
/// default of a torch::nn::Linear that it makes, with the initial weights of the same generator.
/// Throws Exception(invalid_argument) if the blocks do not divide the features.
///
/// Backward sums the input's gradient over ranks, [..., in] elements, and meanwhile computes the
/// weight's. With sequence_dimension: an all-gather forward and a reduce-scatter backward.
class ColumnParallelLinearImpl : public ParallelModule {
 public:
  ColumnParallelLinearImpl(std::int64_t in, std::int64_t out, const ProcessGroup& group)
      : ColumnParallelLinearImpl(ColumnParallelLinearOptions(in, out), group) {}
  ColumnParallelLinearImpl(const ColumnParallelLinearOptions& options, const ProcessGroup& group,
                           torch::nn::Linear initial = nullptr);

  torch::Tensor forward(const torch::Tensor& input);

  ColumnParallelLinearOptions options;
  torch::Tensor weight;  ///< [own part of out, in]
  torch::Tensor bias;    ///< [own part of out]
};
TORCH_MODULE(ColumnParallelLinear);

/// Returns true if a node of the autograd graph is a ColumnParallelLinear's. Its backward may run
/// in parts: it computes the gradients that are asked for, and no others.
bool is_column_linear(const torch::autograd::Node& node);

/// Options of a RowParallelLinear.
struct RowParallelLinearOptions {
  RowParallelLinearOptions(std::int64_t in, std::int64_t out)
      : in_features_(in), out_features_(out) {}

  TORCH_ARG(std::int64_t, in_features);
  TORCH_ARG(std::int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
  /// False: the input has all features, replicated, and each rank takes its part.
  TORCH_ARG(bool, input_is_parallel) = true;
  /// Sequence parallelism: returns this rank's part along this dimension (not the last), which must
  /// divide.
  TORCH_ARG(std::optional<std::int64_t>, sequence_dimension) = std::nullopt;
};

/// torch::nn::Linear whose input features are divided over ranks (columns of `weight`). Input:
/// [..., own part of in]; output: [..., out], replicated: the sum over ranks, to which the bias is
/// added once. Features need not divide. Initial weights as ColumnParallelLinear's.
///
/// Forward sums [..., out] elements over ranks (with sequence_dimension: reduce-scatter, and
/// all-gather backward).
class RowParallelLinearImpl : public ParallelModule {
 public:
  RowParallelLinearImpl(std::int64_t in, std::int64_t out, const ProcessGroup& group)
      : RowParallelLinearImpl(RowParallelLinearOptions(in, out), group) {}
  RowParallelLinearImpl(const RowParallelLinearOptions& options, const ProcessGroup& group,
                        torch::nn::Linear initial = nullptr);

  torch::Tensor forward(const torch::Tensor& input);

  RowParallelLinearOptions options;
  torch::Tensor weight;  ///< [out, own part of in]
  torch::Tensor bias;    ///< [out], replicated
};
TORCH_MODULE(RowParallelLinear);

}  // namespace gradwire

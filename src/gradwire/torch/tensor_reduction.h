#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// Maps a c10d reduction of one tensor type to ours: elements are reduced as `type`. As with NCCL,
/// SUM of bool is logical or.
struct TensorReduction {
  ReduceOp op = ReduceOp::sum;
  DataType type = DataType::float32;
  /// PREMUL_SUM: factor (one number) on every rank's input.
  std::optional<at::Tensor> factor;
  /// Divisor of every rank's input: sums of float16 overflow at 65,504, although their mean may
  /// not.
  int divisor = 1;
};

/// Returns the mapping for `ranks` ranks. Throws Exception(unsupported) that names the reduction,
/// the type and the alternatives.
TensorReduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type, int ranks,
                             const ArgumentName& name);

/// Lends a tensor to such a reduction. Throws as lend() does.
LentSpan lend_to(const TensorReduction& reduction, const torch::Tensor& tensor,
                 const ArgumentName& name);

/// Reduces several tensors of this rank locally, into new memory. Throws Exception:
/// invalid_argument unless all have one size and type, unsupported for AVG and PREMUL_SUM.
at::Tensor reduce_locally(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op,
                          const ArgumentName& name);

/// Returns the tensor, or a copy multiplied by the factor or divided, if required.
at::Tensor premultiplied(const TensorReduction& reduction, const at::Tensor& tensor);

/// Does the same in place.
void premultiply(const TensorReduction& reduction, const at::Tensor& tensor);

}  // namespace gradwire

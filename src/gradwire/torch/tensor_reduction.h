#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// How one of c10d's reductions of tensors of one type is done with ours: elements travel as
/// `type`, `per_element` of them for each of the tensor's. bool adds as logical or, as over NCCL.
struct TensorReduction {
  ReduceOp op = ReduceOp::sum;
  DataType type = DataType::float32;
  /// PREMUL_SUM's: every rank multiplies its input by this (one number) first.
  std::optional<at::Tensor> factor;
  /// Every rank divides its input by this first: sums of float16 end at 65,504, their mean need
  /// not.
  int divisor = 1;
};

/// Throws Exception(unsupported) that names the reduction, the type and what there is instead.
/// `ranks`: how many are to be reduced.
TensorReduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type, int ranks,
                             const ArgumentName& name);

/// Lends a tensor to such a reduction. Throws as lend() does.
LentSpan lend_to(const TensorReduction& reduction, const torch::Tensor& tensor,
                 const ArgumentName& name);

/// What several tensors of one rank come to, in memory of its own. Throws Exception
/// (invalid_argument) unless they are alike, (unsupported) for AVG and PREMUL_SUM.
at::Tensor reduced_here(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op,
                        const ArgumentName& name);

/// The tensor, or a copy of it multiplied by the factor or divided, if it is to be.
at::Tensor premultiplied(const TensorReduction& reduction, const at::Tensor& tensor);

/// The same in place.
void premultiply(const TensorReduction& reduction, const at::Tensor& tensor);

}  // namespace gradwire

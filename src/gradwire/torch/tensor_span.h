#pragma once

#include <optional>
#include <string_view>

#include <torch/torch.h>

#include "gradwire/comm/communicator.h"

namespace gradwire {

/// Names an argument in an error: "rank 2: all_reduce, argument 'tensors[0]'".
struct ArgumentName {
  std::string_view operation;
  std::string_view argument;
  Rank rank = 0;
};

/// Lends a tensor's memory to an operation; the span keeps the tensor alive until the operation
/// lets go of it. Throws Exception(invalid_argument) unless the tensor is defined, dense,
/// contiguous, not lazily conjugated or negated, and on the CPU, Exception(unsupported) if its
/// element type has no counterpart in DataType.
LentSpan lend(const torch::Tensor& tensor, const ArgumentName& name);

/// The same for operations that only move bytes, which any element type can travel through: types
/// without a DataType (bool, int16, complex, ...) are lent as uint8.
LentSpan lend_bytes(const torch::Tensor& tensor, const ArgumentName& name);

/// The same for any element type, whose bits travel as elements of `type`.
LentSpan lend_as(DataType type, const torch::Tensor& tensor, const ArgumentName& name);

/// The DataType that is a tensor's element type; nothing for bool, complex and rarer ones.
std::optional<DataType> data_type_of(torch::ScalarType type);

/// The same for what is reduced, wherever the tensor lies: throws Exception(unsupported), which
/// names the argument and the types there are, instead of nothing.
DataType reducible_type_of(const torch::Tensor& tensor, const ArgumentName& name);

/// A tensor of one dimension of its own, with what lies in the span.
torch::Tensor copy_of(const LentSpan& span);

}  // namespace gradwire

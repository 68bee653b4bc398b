#pragma once

#include <optional>
#include <string_view>

#include <torch/types.h>

#include "gradwire/base/lent_span.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// Names an argument in an error: "rank 2: all_reduce, argument 'tensors[0]'".
struct ArgumentName {
  std::string_view operation;
  std::string_view argument;
  Rank rank = 0;
};

/// Lends a tensor's memory to an operation; the span keeps the tensor alive until the operation
/// releases it. Throws Exception(invalid_argument) unless the tensor is defined, dense, contiguous,
/// not lazily conjugated or negated, and on the CPU. Throws Exception(unsupported) if its element
/// type has no DataType.
LentSpan lend(const torch::Tensor& tensor, const ArgumentName& name);

/// The same for a tensor on any device: the span's pointer is valid there.
LentSpan lend_on_device(const torch::Tensor& tensor, const ArgumentName& name);

/// Returns a 1-D tensor over lent memory on `device`, without a copy. It keeps the memory alive.
torch::Tensor tensor_over(const LentConstSpan& span, c10::Device device);

/// The same for operations that only move bytes and accept any element type: types without a
/// DataType (bool, complex, ...) are lent as uint8.
LentSpan lend_bytes(const torch::Tensor& tensor, const ArgumentName& name);

/// The same for any element type, whose bits are treated as elements of `type`.
LentSpan lend_as(DataType type, const torch::Tensor& tensor, const ArgumentName& name);

/// Returns the DataType of an element type; nullopt for bool, complex and rarer types.
std::optional<DataType> data_type_of(torch::ScalarType type);

/// Returns the DataType for a reduction, for a tensor on any device. Throws Exception(unsupported),
/// which names the argument and the supported types, if there is none.
DataType reducible_type_of(const torch::Tensor& tensor, const ArgumentName& name);

/// Returns a new 1-D tensor with a copy of the span.
torch::Tensor copy_of(const LentSpan& span);

}  // namespace gradwire

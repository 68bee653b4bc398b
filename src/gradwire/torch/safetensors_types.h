#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <torch/torch.h>

namespace gradwire {

/// Returns the safetensors name of an element type ("F32", "BF16", ...). Throws
/// Exception(unsupported).
std::string safetensors_type_name(torch::ScalarType type);

/// Returns the element type with that name. Throws Exception(unsupported).
torch::ScalarType safetensors_type(const std::string& name);

/// Returns the memory of a contiguous CPU tensor as bytes; valid as long as the tensor.
std::span<std::byte> bytes_of(const torch::Tensor& tensor);

}  // namespace gradwire

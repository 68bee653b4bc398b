#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <torch/torch.h>

namespace gradwire {

/// The safetensors format's name of an element type ("F32", "BF16", ...). Throws
/// Exception(unsupported).
std::string safetensors_type_name(torch::ScalarType type);

/// The element type of that name. Throws Exception(unsupported).
torch::ScalarType safetensors_type(const std::string& name);

/// A contiguous tensor's memory on the CPU, as bytes; valid as long as the tensor.
std::span<std::byte> bytes_of(const torch::Tensor& tensor);

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Returns the safetensors name of an element type ("F32", "BF16", ...). Throws
/// Exception(unsupported).
std::string safetensors_type_name(torch::ScalarType type);

/// Returns the element type with that name. Throws Exception(unsupported).
torch::ScalarType safetensors_type(const std::string& name);

/// Returns the memory of a contiguous CPU tensor as bytes; valid as long as the tensor.
std::span<std::byte> bytes_of(const torch::Tensor& tensor);

/// Content of a safetensors file (https://huggingface.co/docs/safetensors, "Format").
struct SafetensorsFile {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes the tensors, row-major and from the CPU. The file appears atomically: it is written under
/// a temporary name, flushed to the disk, and renamed. Throws Exception: invalid_argument (two
/// tensors of one name), unsupported (element type), system.
void save_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Reads a whole file. Throws Exception(invalid_argument) that names the file and the defect:
/// missing, truncated, or a header that does not match the data.
SafetensorsFile load_safetensors(const std::filesystem::path& path);

}  // namespace gradwire

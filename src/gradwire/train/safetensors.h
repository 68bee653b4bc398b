#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// What a safetensors file holds (https://huggingface.co/docs/safetensors, "Format"): eight bytes,
/// little-endian, that say how long the JSON header is; the header; the tensors' bytes.
struct SafetensorsFile {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes the tensors, row-major and from the CPU. The file appears whole or not at all: it is
/// written under another name, flushed to the disk, and renamed. Throws Exception: invalid_argument
/// (two tensors of one name), unsupported (element type), system.
void save_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Reads a whole file. Throws Exception(invalid_argument) that names the file and what is wrong
/// with it: not there, cut off, a header that does not fit the data.
SafetensorsFile load_safetensors(const std::filesystem::path& path);

/// The format's name of an element type ("F32", "BF16", ...). Throws Exception(unsupported).
std::string safetensors_type_name(torch::ScalarType type);

}  // namespace gradwire

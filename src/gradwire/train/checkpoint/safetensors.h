#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"

namespace gradwire {

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

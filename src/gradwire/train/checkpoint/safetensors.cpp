#include "gradwire/train/checkpoint/safetensors.h"

#include "gradwire/base/file.h"
#include "gradwire/checkpoint/input_file.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "gradwire/torch/safetensors_types.h"

namespace gradwire {

void save_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<checkpoint::StoredTensor> stored;
  std::map<std::string, torch::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({.name = name,
                      .type = safetensors_type_name(tensor.scalar_type()),
                      .shape = tensor.sizes().vec()});
    by_name[name] = tensor.detach().to(torch::kCPU).contiguous();
  }
  const auto header = checkpoint::lay_out_safetensors(std::move(stored), metadata);
  const auto text = checkpoint::safetensors_header_bytes(header);
  AtomicFile file(path);
  file.write(text.data(), text.size());
  for (const auto& item : header.tensors) {
    const auto bytes = bytes_of(by_name.at(item.name));
    file.write(bytes.data(), bytes.size());
  }
  file.commit();
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  const auto header = checkpoint::read_safetensors_header(path);
  const checkpoint::InputFile file(path);
  SafetensorsFile content{.metadata = header.metadata};
  for (const auto& item : header.tensors) {
    auto tensor = torch::empty(item.shape, safetensors_type(item.type));
    file.read(header.data_begin + item.begin, bytes_of(tensor));
    content.tensors[item.name] = tensor;
  }
  return content;
}

}  // namespace gradwire

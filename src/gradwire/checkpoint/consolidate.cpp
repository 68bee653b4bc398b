#include "gradwire/checkpoint/consolidate.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/file.h"
#include "gradwire/checkpoint/safetensors_header.h"

namespace gradwire::checkpoint {
namespace {

constexpr std::size_t kChunkBytes = 4 << 20;

std::map<std::string, const ManifestTensor*> wanted(const Manifest& manifest, bool optimizer) {
  std::map<std::string, const ManifestTensor*> by_name;
  std::vector<std::string> names;
  for (const auto& tensor : manifest.tensors) {
    by_name[tensor.name] = &tensor;
    names.push_back(tensor.name);
  }
  if (!optimizer) {
    for (const auto& state : optimizer_states(std::move(names))) by_name.erase(state);
  }
  return by_name;
}

void copy_tensor(const CheckpointReader& checkpoint, const ManifestTensor& tensor,
                 std::vector<std::byte>& chunk, AtomicFile& file) {
  const auto size = stored_type_bytes(tensor.type);
  const auto chunk_elements = static_cast<std::int64_t>(chunk.size() / size);
  const auto elements = elements_of(tensor.shape);
  for (std::int64_t begin = 0; begin < elements; begin += chunk_elements) {
    const auto count = static_cast<std::size_t>(std::min(chunk_elements, elements - begin));
    const auto part = Bytes(chunk).first(count * size);
    checkpoint.read(tensor, begin, part);
    file.write(part.data(), part.size());
  }
}

}  // namespace

std::set<std::string> optimizer_states(std::vector<std::string> names) {
  constexpr std::string_view kPrefix = kOptimizerPrefix;
  std::ranges::sort(names, {}, &std::string::size);  // A parameter is shorter than its states.
  std::set<std::string> parameters;
  std::set<std::string> states;
  for (auto& name : names) {
    const auto dot = name.starts_with(kPrefix) ? name.find('.', kPrefix.size()) : name.npos;
    const bool is_state = dot != name.npos && parameters.contains(name.substr(dot + 1));
    (is_state ? states : parameters).insert(std::move(name));
  }
  return states;
}

Consolidation consolidate(const CheckpointReader& checkpoint, const std::filesystem::path& output,
                          bool optimizer) {
  const auto& manifest = checkpoint.manifest();
  checkpoint.verify();
  const auto tensors = wanted(manifest, optimizer);
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({.name = name, .type = tensor->type, .shape = tensor->shape});
  }
  const auto header = lay_out_safetensors(
      std::move(stored),
      {{"format", "pt"}, {"model", manifest.model}, {"step", std::to_string(manifest.step)}});
  AtomicFile file(output);
  const auto text = safetensors_header_bytes(header);
  file.write(text.data(), text.size());
  std::vector<std::byte> chunk(kChunkBytes);
  for (const auto& tensor : header.tensors) {
    copy_tensor(checkpoint, *tensors.at(tensor.name), chunk, file);
  }
  file.commit();
  const auto data = header.tensors.empty() ? 0 : header.tensors.back().end;
  return {tensors.size(), header.data_begin + data};
}

}  // namespace gradwire::checkpoint

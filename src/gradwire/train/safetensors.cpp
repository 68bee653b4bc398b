#include "gradwire/train/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/atomic_file.h"
#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"

namespace gradwire {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's data is little-endian");

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // As the reference implementation has it.

struct TypeName {
  torch::ScalarType type;
  const char* name;
};

constexpr std::array<TypeName, 11> kTypes{{{torch::kFloat64, "F64"},
                                           {torch::kFloat32, "F32"},
                                           {torch::kFloat16, "F16"},
                                           {torch::kBFloat16, "BF16"},
                                           {torch::kInt64, "I64"},
                                           {torch::kInt32, "I32"},
                                           {torch::kInt16, "I16"},
                                           {torch::kInt8, "I8"},
                                           {torch::kUInt8, "U8"},
                                           {torch::kBool, "BOOL"},
                                           {torch::kComplexFloat, "C64"}}};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {}", path.string(), reason));
}

torch::ScalarType type_named(const std::string& name, const std::filesystem::path& path) {
  for (const auto& known : kTypes) {
    if (name == known.name) return known.type;
  }
  refuse(path, fmt::format("elements of type {} cannot be read", name));
}

/// Larger elements first, so that every tensor is aligned to its own; then by name.
std::vector<NamedTensor> in_file_order(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> ordered;
  for (const auto& [name, tensor] : tensors) {
    ordered.push_back({name, tensor.detach().to(torch::kCPU).contiguous()});
  }
  std::ranges::sort(ordered, [](const auto& a, const auto& b) {
    if (a.tensor.element_size() != b.tensor.element_size()) {
      return a.tensor.element_size() > b.tensor.element_size();
    }
    return a.name < b.name;
  });
  return ordered;
}

std::string header_of(const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  auto header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (header.contains(name)) {
      throw Exception(ErrorKind::invalid_argument,
                      fmt::format("safetensors: two tensors are named '{}'", name));
    }
    const auto end = offset + tensor.nbytes();
    header[name] = {{"dtype", safetensors_type_name(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  auto text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

nlohmann::json read_header(std::istream& file, std::uint64_t file_bytes,
                           const std::filesystem::path& path, std::uint64_t& data_begin) {
  std::array<std::byte, 8> length_bytes{};
  file.read(reinterpret_cast<char*>(length_bytes.data()), length_bytes.size());
  const auto length = load_little_endian<std::uint64_t>(length_bytes.data());
  if (!file || length > kMostHeaderBytes || 8 + length > file_bytes) {
    refuse(path, "is not a safetensors file, or is cut off in its header");
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  auto header = nlohmann::json::parse(text, nullptr, false);
  if (!file || !header.is_object()) refuse(path, "the header is not a JSON object");
  data_begin = 8 + length;
  return header;
}

torch::Tensor read_tensor(std::istream& file, const std::string& name, const nlohmann::json& entry,
                          std::uint64_t data_begin, std::uint64_t file_bytes,
                          const std::filesystem::path& path) {
  const auto type = type_named(entry.at("dtype").get<std::string>(), path);
  const auto shape = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto [begin, end] = entry.at("data_offsets").get<std::array<std::uint64_t, 2>>();
  if (begin > end || end > file_bytes - data_begin) {
    refuse(path, fmt::format("'{}' goes beyond the end of the file", name));
  }
  std::uint64_t bytes = torch::elementSize(type);
  for (const auto size : shape) {
    if (size < 0 || (size > 0 && bytes > file_bytes / static_cast<std::uint64_t>(size))) {
      refuse(path, fmt::format("'{}' has an impossible shape", name));
    }
    bytes *= static_cast<std::uint64_t>(size);
  }
  if (bytes != end - begin) {
    refuse(path, fmt::format("'{}' has {} bytes where its shape and type make {}", name,
                             end - begin, bytes));
  }
  auto tensor = torch::empty(shape, type);
  file.seekg(static_cast<std::streamoff>(data_begin + begin));
  file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(bytes));
  if (!file) refuse(path, fmt::format("'{}' cannot be read", name));
  return tensor;
}

}  // namespace

std::string safetensors_type_name(torch::ScalarType type) {
  for (const auto& known : kTypes) {
    if (type == known.type) return known.name;
  }
  throw Exception(ErrorKind::unsupported,
                  fmt::format("safetensors has no name for elements of {}", torch::toString(type)));
}

void save_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const auto ordered = in_file_order(tensors);
  const auto header = header_of(ordered, metadata);
  std::array<std::byte, 8> length{};
  store_little_endian<std::uint64_t>(length.data(), header.size());
  AtomicFile file(path);
  file.write(length.data(), length.size());
  file.write(header.data(), header.size());
  for (const auto& item : ordered) file.write(item.tensor.data_ptr(), item.tensor.nbytes());
  file.commit();
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) refuse(path, "cannot be opened");
  const auto bytes = static_cast<std::uint64_t>(file.tellg());
  file.seekg(0);
  std::uint64_t data_begin = 0;
  const auto header = read_header(file, bytes, path, data_begin);
  SafetensorsFile content;
  try {
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        content.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        content.tensors[name] = read_tensor(file, name, entry, data_begin, bytes, path);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("the header is damaged: {}", error.what()));
  }
  return content;
}

}  // namespace gradwire

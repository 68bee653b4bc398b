#include "gradwire/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/checkpoint/input_file.h"

namespace gradwire {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's data is little-endian");

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // As the reference implementation has it.

struct TypeSize {
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeSize, 14> kTypes{{{"F64", 8},
                                           {"F32", 4},
                                           {"F16", 2},
                                           {"BF16", 2},
                                           {"F8_E4M3", 1},
                                           {"F8_E5M2", 1},
                                           {"I64", 8},
                                           {"I32", 4},
                                           {"I16", 2},
                                           {"I8", 1},
                                           {"U8", 1},
                                           {"U16", 2},
                                           {"BOOL", 1},
                                           {"C64", 8}}};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {}", path.string(), reason));
}

nlohmann::json read_json(const InputFile& file, std::uint64_t& data_begin) {
  std::array<std::byte, 8> length_bytes{};
  if (file.size() < length_bytes.size()) {
    refuse(file.path(), "is not a safetensors file, or is cut off in its header");
  }
  file.read(0, length_bytes);
  const auto length = load_little_endian<std::uint64_t>(length_bytes.data());
  if (length > kMostHeaderBytes || 8 + length > file.size()) {
    refuse(file.path(), "is not a safetensors file, or is cut off in its header");
  }
  std::string text(length, '\0');
  file.read(8, std::as_writable_bytes(std::span(text)));
  auto header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) refuse(file.path(), "the header is not a JSON object");
  data_begin = 8 + length;
  return header;
}

std::uint64_t bytes_of(const StoredTensor& tensor, std::uint64_t file_bytes,
                       const std::filesystem::path& path) {
  std::uint64_t bytes = stored_type_bytes(tensor.type);
  if (bytes == 0) {
    refuse(path, fmt::format("elements of type {} cannot be read", tensor.type));
  }
  for (const auto size : tensor.shape) {
    if (size < 0 || (size > 0 && bytes > file_bytes / static_cast<std::uint64_t>(size))) {
      refuse(path, fmt::format("'{}' has an impossible shape", tensor.name));
    }
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

StoredTensor tensor_of(const std::string& name, const nlohmann::json& entry, const InputFile& file,
                       std::uint64_t data_begin) {
  StoredTensor tensor{.name = name,
                      .type = entry.at("dtype").get<std::string>(),
                      .shape = entry.at("shape").get<std::vector<std::int64_t>>()};
  const auto [begin, end] = entry.at("data_offsets").get<std::array<std::uint64_t, 2>>();
  if (begin > end || end > file.size() - data_begin) {
    refuse(file.path(), fmt::format("'{}' goes beyond the end of the file", name));
  }
  const auto bytes = bytes_of(tensor, file.size(), file.path());
  if (bytes != end - begin) {
    refuse(file.path(), fmt::format("'{}' has {} bytes where its shape and type make {}", name,
                                    end - begin, bytes));
  }
  tensor.begin = begin;
  tensor.end = end;
  return tensor;
}

}  // namespace

std::size_t stored_type_bytes(std::string_view type) {
  const auto* found = std::ranges::find(kTypes, type, &TypeSize::name);
  return found == kTypes.end() ? 0 : found->bytes;
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return count;
}

SafetensorsHeader lay_out_safetensors(std::vector<StoredTensor> tensors,
                                      std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  std::ranges::sort(header.tensors, [](const auto& a, const auto& b) {
    const auto a_bytes = stored_type_bytes(a.type);
    const auto b_bytes = stored_type_bytes(b.type);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  std::uint64_t offset = 0;
  for (auto& tensor : header.tensors) {
    if (stored_type_bytes(tensor.type) == 0) {
      throw Exception(ErrorKind::unsupported, fmt::format("'{}': safetensors has no elements of {}",
                                                          tensor.name, tensor.type));
    }
    tensor.begin = offset;
    offset +=
        static_cast<std::uint64_t>(elements_of(tensor.shape)) * stored_type_bytes(tensor.type);
    tensor.end = offset;
  }
  header.data_begin = safetensors_header_bytes(header).size();
  return header;
}

std::string safetensors_header_bytes(const SafetensorsHeader& header) {
  auto json = nlohmann::json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const auto& tensor : header.tensors) {
    if (json.contains(tensor.name)) {
      throw Exception(ErrorKind::invalid_argument,
                      fmt::format("safetensors: two tensors are named '{}'", tensor.name));
    }
    json[tensor.name] = {{"dtype", tensor.type},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  auto text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  store_little_endian<std::uint64_t>(reinterpret_cast<std::byte*>(length.data()), text.size());
  return length + text;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  const InputFile file(path);
  SafetensorsHeader header;
  const auto json = read_json(file, header.data_begin);
  try {
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") {
        header.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        header.tensors.push_back(tensor_of(name, entry, file, header.data_begin));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("the header is damaged: {}", error.what()));
  }
  std::ranges::sort(header.tensors, {}, &StoredTensor::begin);
  return header;
}

}  // namespace gradwire

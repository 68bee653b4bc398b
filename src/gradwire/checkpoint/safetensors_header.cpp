#include "gradwire/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/bytes.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/input_file.h"
#include "gradwire/checkpoint/strict_json.h"

namespace gradwire::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's data is little-endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // The reference implementation's maximum.

struct TypeSize {
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeSize, 18> kTypes{{{"F64", 8},
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
                                           {"U32", 4},
                                           {"U64", 8},
                                           {"F8_E4M3FNUZ", 1},
                                           {"F8_E5M2FNUZ", 1},
                                           {"BOOL", 1},
                                           {"C64", 8}}};

constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 62;

/// Returns the size of a file's header, including the 8 bytes of its length. `bytes`: at least the
/// file's first 8 bytes, if it has that many.
std::uint64_t header_bytes(std::string_view bytes, std::uint64_t file_bytes) {
  constexpr const char* kCut = "is not a safetensors file, or its header is truncated";
  if (bytes.size() < 8 || file_bytes < 8) refuse(kCut);
  const auto length =
      load_little_endian<std::uint64_t>(reinterpret_cast<const std::byte*>(bytes.data()));
  if (length > kMaxHeaderBytes || length > file_bytes - 8) refuse(kCut);
  return 8 + length;
}

StoredTensor tensor_of(const std::string& name, const StrictJson& entry, std::uint64_t data_bytes) {
  StoredTensor tensor{.name = name, .type = entry.at("dtype").text()};
  if (stored_type_bytes(tensor.type) == 0) {
    refuse("element type {} is not supported", tensor.type);
  }
  const auto sizes = entry.at("shape").numbers(kMaxTensorBytes);
  tensor.shape.assign(sizes.begin(), sizes.end());
  const auto bytes = stored_tensor_bytes(tensor.type, tensor.shape);
  if (!bytes) refuse("'{}' has an impossible shape", name);
  const auto offsets = entry.at("data_offsets").numbers(kMaxTensorBytes);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    entry.at("data_offsets").refuse("[begin, end] of its bytes, in ascending order");
  }
  if (offsets[1] > data_bytes) refuse("'{}' exceeds the end of the file", name);
  if (*bytes != offsets[1] - offsets[0]) {
    refuse("'{}' has {} bytes, but its shape and type require {}", name, offsets[1] - offsets[0],
           *bytes);
  }
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  return tensor;
}

SafetensorsHeader header_of(std::string_view bytes, std::uint64_t file_bytes) {
  SafetensorsHeader header{.data_begin = header_bytes(bytes, file_bytes)};
  if (header.data_begin > bytes.size()) refuse("its header is truncated");
  const auto parsed = parse_bounded_json(bytes.substr(8, header.data_begin - 8));
  if (!parsed) refuse("the header is damaged: {}", parsed.error().message);
  if (!parsed->is_object()) refuse("the header is not a JSON object");
  for (const auto& [name, value] : parsed->items()) {
    const StrictJson entry(value, name);
    if (name != "__metadata__") {
      header.tensors.push_back(tensor_of(name, entry, file_bytes - header.data_begin));
      continue;
    }
    entry.object();
    for (const auto& [key, text] : value.items()) {
      header.metadata[key] = entry.at(key).text();
    }
  }
  std::ranges::sort(header.tensors, {}, &StoredTensor::begin);
  return header;
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

std::optional<std::uint64_t> stored_tensor_bytes(std::string_view type,
                                                 const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = stored_type_bytes(type);
  if (bytes == 0) return std::nullopt;
  bool empty = false;
  for (const auto size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    const auto counted = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
    if (counted > kMaxTensorBytes / bytes) return std::nullopt;
    bytes *= counted;
  }
  return empty ? 0 : bytes;
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
      throw Exception(
          ErrorKind::unsupported,
          fmt::format("'{}': safetensors has no element type {}", tensor.name, tensor.type));
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
      refuse("safetensors: two tensors are named '{}'", tensor.name);
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

Result<SafetensorsHeader> parse_safetensors_header(std::string_view bytes,
                                                   std::uint64_t file_bytes) {
  try {
    return header_of(bytes, file_bytes);
  } catch (const Exception& error) {
    return failure(error.kind(), error.what());
  }
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string bytes(std::min<std::uint64_t>(file.size(), 8), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  try {
    bytes.resize(header_bytes(bytes, file.size()));
  } catch (const Exception& error) {
    refuse("{}: {}", path.string(), error.what());
  }
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  auto header = parse_safetensors_header(bytes, file.size());
  if (header) return std::move(*header);
  refuse("{}: {}", path.string(), header.error().message);
}

}  // namespace gradwire::checkpoint

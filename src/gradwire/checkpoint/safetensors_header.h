#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire::checkpoint {

/// Returns the bytes of one element of a type, given by its safetensors name ("F32", "BF16", ...);
/// 0 for an unknown name.
std::size_t stored_type_bytes(std::string_view type);

/// A tensor in a safetensors file: row-major, little-endian.
struct StoredTensor {
  std::string name;
  std::string type;                 ///< "F32", "BF16", ...
  std::vector<std::int64_t> shape;  ///< Empty for a scalar.
  std::uint64_t begin = 0;          ///< First byte, relative to the file's data section.
  std::uint64_t end = 0;
};

/// Header of a safetensors file (https://huggingface.co/docs/safetensors, "Format"): the length of
/// the JSON text as eight bytes, little-endian, then the JSON text. The tensors' bytes follow.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< In the order of their data.
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  ///< Offset of the data section in the file.
};

/// Number of elements of a tensor of a trusted shape; does not check for overflow.
std::int64_t elements_of(const std::vector<std::int64_t>& shape);

/// Bytes of a tensor of any shape and type. Returns nullopt for an unknown type, a negative size,
/// or more than 2^62 bytes (sizes of 0 counted as 1).
std::optional<std::uint64_t> stored_tensor_bytes(std::string_view type,
                                                 const std::vector<std::int64_t>& shape);

/// Orders the tensors and assigns their offsets. Larger element types come first, so that every
/// tensor is aligned to its elements; equal sizes are sorted by name. Throws Exception:
/// invalid_argument (duplicate name), unsupported (type).
SafetensorsHeader lay_out_safetensors(std::vector<StoredTensor> tensors,
                                      std::map<std::string, std::string> metadata = {});

/// Returns the file's first `data_begin` bytes.
std::string safetensors_header_bytes(const SafetensorsHeader& header);

/// Parses an untrusted header. In a returned header, each tensor lies within the file and its size
/// fits its shape and type. `bytes`: the start of the file, with the whole header; more may follow.
/// `file_bytes`: size of the whole file. Does no I/O. Error: invalid_argument, with the reason.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view bytes,
                                                   std::uint64_t file_bytes);

/// Throws Exception(invalid_argument), which names the file and the reason: missing, truncated, a
/// header that does not fit the data.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

}  // namespace gradwire::checkpoint

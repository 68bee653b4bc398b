#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// Bytes of an element of a type by the safetensors format's name for it ("F32", "BF16", ...); 0
/// for names that are none.
std::size_t stored_type_bytes(std::string_view type);

/// A tensor in a safetensors file: row-major, little-endian.
struct StoredTensor {
  std::string name;
  std::string type;                 ///< "F32", "BF16", ...
  std::vector<std::int64_t> shape;  ///< Empty: a scalar.
  std::uint64_t begin = 0;          ///< Of its bytes, from where the file's data begins.
  std::uint64_t end = 0;
};

/// What a safetensors file begins with (https://huggingface.co/docs/safetensors, "Format"): eight
/// bytes, little-endian, that say how long the JSON is; the JSON. The tensors' bytes follow.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< In the order of their data.
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  ///< In the file.
};

/// Elements of a tensor of that shape, which nobody hostile has written: nothing overflows.
std::int64_t elements_of(const std::vector<std::int64_t>& shape);

/// Bytes of a tensor of any shape and type; none for an unknown type, a size below 0, and more than
/// 2^62 bytes (sizes of 0 counting as 1), which no file has.
std::optional<std::uint64_t> stored_tensor_bytes(std::string_view type,
                                                 const std::vector<std::int64_t>& shape);

/// Orders the tensors (larger elements first, so that every tensor is aligned to its own; then by
/// name), and gives them their places. Throws Exception: invalid_argument (two of one name),
/// unsupported (type).
SafetensorsHeader lay_out_safetensors(std::vector<StoredTensor> tensors,
                                      std::map<std::string, std::string> metadata = {});

/// The file's first `data_begin` bytes.
std::string safetensors_header_bytes(const SafetensorsHeader& header);

/// Takes the bytes for hostile: what comes of them is consistent, and each tensor lies within the
/// file. `bytes`: the file's first ones, with the whole header; more may follow. `file_bytes`: of
/// the whole file. Touches no disk. Error: invalid_argument, with what is wrong.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view bytes,
                                                   std::uint64_t file_bytes);

/// Throws Exception(invalid_argument) that names the file and what is wrong with it: not there, cut
/// off, a header that does not fit the data.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

}  // namespace gradwire

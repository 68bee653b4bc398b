#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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

/// Elements of a tensor of that shape.
std::int64_t elements_of(const std::vector<std::int64_t>& shape);

/// Orders the tensors (larger elements first, so that every tensor is aligned to its own; then by
/// name), and gives them their places. Throws Exception: invalid_argument (two of one name),
/// unsupported (type).
SafetensorsHeader lay_out_safetensors(std::vector<StoredTensor> tensors,
                                      std::map<std::string, std::string> metadata = {});

/// The file's first `data_begin` bytes.
std::string safetensors_header_bytes(const SafetensorsHeader& header);

/// Throws Exception(invalid_argument) that names the file and what is wrong with it: not there, cut
/// off, a header that does not fit the data.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

}  // namespace gradwire

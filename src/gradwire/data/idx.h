#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gradwire {

/// An array of bytes from an IDX file, the format of MNIST and Fashion-MNIST
/// (http://yann.lecun.com/exdb/mnist, "FILE FORMATS").
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  ///< Row-major; as many as the product of `shape`.
};

/// Reads an IDX file of unsigned bytes, plain or gzip. Throws Exception(invalid_argument), which
/// names the file and the reason: missing, not IDX, another element type, truncated, longer than
/// its header specifies, or damaged.
IdxArray read_idx(const std::filesystem::path& path);

}  // namespace gradwire

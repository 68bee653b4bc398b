#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gradwire {

/// An array of bytes from an IDX file, the format of MNIST and Fashion-MNIST
/// (http://yann.lecun.com/exdb/mnist, "FILE FORMATS").
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  ///< Row-major; the product of `shape` many.
};

/// Reads an IDX file of unsigned bytes, plain or compressed by gzip. Throws
/// Exception(invalid_argument) that names the file and what is wrong with it: not there, not IDX,
/// another element type, cut off, longer than its header says, or damaged.
IdxArray read_idx(const std::filesystem::path& path);

}  // namespace gradwire

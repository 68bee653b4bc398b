#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace gradwire::test {

/// Returns an IDX file's bytes: the header for unsigned bytes of this shape, then `values`.
inline std::string idx_bytes(const std::vector<std::uint32_t>& shape, const std::string& values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const auto size : shape) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(size >> shift & 0xff));
  }
  return bytes + values;
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Writes the four files of a data set of `train` and `test` images. In class c, rows 2c and 2c + 1
/// are white and the rest is black: small and easy to learn.
inline void write_image_data(const std::filesystem::path& folder, std::uint32_t train,
                             std::uint32_t test) {
  const auto write = [&](const std::string& prefix, std::uint32_t count) {
    std::string images;
    std::string labels;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t label = i * 7 % 10;
      labels.push_back(static_cast<char>(label));
      images.append(28 * 2 * label, '\0').append(28 * 2, '\xff');
      images.append(28 * (26 - 2 * label), '\0');
    }
    write_file(folder / (prefix + "-images-idx3-ubyte"), idx_bytes({count, 28, 28}, images));
    write_file(folder / (prefix + "-labels-idx1-ubyte"), idx_bytes({count}, labels));
  };
  write("train", train);
  write("t10k", test);
}

}  // namespace gradwire::test

#pragma once

#include <cstdint>
#include <filesystem>

#include "gradwire/base/bytes.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire::checkpoint {

/// A file with random read access. Thread-safe. Errors are Exception(invalid_argument) with the
/// file's name.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  /// Size at the time when it was opened.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// Fills `into` with the bytes from `offset`. Fails if the file ends earlier.
  void read(std::uint64_t offset, Bytes into) const;

  /// CRC-32C of the whole file.
  std::uint32_t checksum() const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

}  // namespace gradwire::checkpoint

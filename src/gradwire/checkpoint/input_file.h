#pragma once

#include <cstdint>
#include <filesystem>

#include "gradwire/base/bytes.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// A file to read any part of. Thread-safe. Errors are Exception(invalid_argument) with its name.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  /// When it was opened.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// Fills `into` with what begins at `offset`; less than that being there is an error.
  void read(std::uint64_t offset, Bytes into) const;

  /// CRC-32C of all of it.
  std::uint32_t checksum() const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <filesystem>

#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// A file that appears whole or not at all, even if the machine fails: written beside its place
/// under another name, flushed to the disk, renamed. Without commit() nothing remains. Throws
/// Exception(system) with the file's name and the system's reason.
class AtomicFile {
 public:
  /// Creates the folder of `path` if it is not there.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t size);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  UniqueFd fd_;
};

}  // namespace gradwire

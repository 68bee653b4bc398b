#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// A file that appears whole or not at all, even if the machine fails: written beside its place
/// under another name, flushed to the disk, renamed. Without commit() nothing remains. What is
/// there and is no file, such as a pipe, /dev/null or /dev/stdout, is written to where it is; a
/// link stays, and what it leads to is written. Throws Exception(system) with the file's name and
/// the system's reason, for a folder's name too.
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
  void make_folder() const;
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  ///< Empty if written in place.
  UniqueFd fd_;
};

/// Throws what AtomicFile would, and leaves no trace but the folder: for those who will write only
/// hours later. A pipe or device is not touched, as whoever reads it would take that for the end.
void check_writable(const std::filesystem::path& path);

/// Writes a whole AtomicFile.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace gradwire

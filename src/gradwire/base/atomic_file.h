#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// A file that appears as a whole or not at all, even if the machine fails: it is written next to
/// its place under another name, flushed to the disk, then renamed. Without commit() nothing
/// remains. Paths that exist and are not regular files, such as a pipe, /dev/null or /dev/stdout,
/// are written directly. A symbolic link stays, and its target is written. Throws Exception(system)
/// with the file's name and the system's reason, also if the path names a folder.
class AtomicFile {
 public:
  /// Creates the folder of `path` if it does not exist.
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

/// Throws as AtomicFile would, and leaves no trace but the folder: for callers that write only
/// hours later. Does not open pipes or devices, as a pipe's reader would take the close for the
/// end.
void check_writable(const std::filesystem::path& path);

/// Writes `text` as an AtomicFile.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// Returns the whole content of a file, or of a pipe until its end. Fails with system, with the
/// name and the reason, such as "cannot read runs/a: it is a folder".
Result<std::string> read_file(const std::filesystem::path& path);

/// A file with a secret, as read by read_private_file().
struct PrivateFile {
  bool exists = false;
  std::string content;  ///< Empty if it does not exist.
};

/// Reads a file that holds a secret, up to `max_bytes`. It must be a regular file, not a link to
/// one, owned by this user, with no permissions for other users. These are checked on the open
/// descriptor before a byte is read, so the file cannot be replaced meanwhile. A FIFO does not
/// block. Fails with refused (what the file is, and what it must be) or system; messages are to
/// follow the file's name.
Result<PrivateFile> read_private_file(const std::string& path, std::size_t max_bytes);

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

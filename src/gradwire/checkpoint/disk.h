#pragma once

#include <filesystem>

#include "gradwire/base/bytes.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire::checkpoint {

/// File system operations of saving, with one virtual function for each system call that changes
/// something. Tests make any of them fail, or end the process there. Errors are Exception(system)
/// with the path and the system's reason.
class Disk {
 public:
  Disk() = default;
  virtual ~Disk() = default;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// Creates one folder, whose parent exists; the folder may exist.
  virtual void make_folder(const std::filesystem::path& path);
  /// Creates a file, or truncates an existing one.
  virtual UniqueFd create(const std::filesystem::path& path);
  /// Opens a file for appending; creates it if it does not exist.
  virtual UniqueFd append_to(const std::filesystem::path& path);
  virtual void write(const UniqueFd& file, ConstBytes bytes, const std::filesystem::path& path);
  /// Returns after the file's data is on the disk (fsync).
  virtual void flush(const UniqueFd& file, const std::filesystem::path& path);
  /// Returns after the folder's entries are on the disk (fsync).
  virtual void flush_folder(const std::filesystem::path& path);
  /// `to` must not exist, unless both are files.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Removes a file or an empty folder; it need not exist.
  virtual void remove(const std::filesystem::path& path);

  /// Creates a folder and its missing parents; returns after their names are on the disk.
  void make_folders(const std::filesystem::path& path);
  /// Removes a file, or a folder with its content.
  void remove_all(const std::filesystem::path& path);
};

}  // namespace gradwire::checkpoint

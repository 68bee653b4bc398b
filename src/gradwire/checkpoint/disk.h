#pragma once

#include <filesystem>

#include "gradwire/base/bytes.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire {

/// What saving asks of the file system, one virtual function for each system call that changes
/// something: tests let any of them fail, or be the last thing a process does. Errors are
/// Exception(system) with the path and the system's reason.
class Disk {
 public:
  Disk() = default;
  virtual ~Disk() = default;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// One folder inside another; it may exist.
  virtual void make_folder(const std::filesystem::path& path);
  /// A new file, or an existing one made empty.
  virtual UniqueFd create(const std::filesystem::path& path);
  /// A file to add to at its end, a new one if there is none.
  virtual UniqueFd append_to(const std::filesystem::path& path);
  virtual void write(const UniqueFd& file, ConstBytes bytes, const std::filesystem::path& path);
  /// Until what was written to the file is on the disk.
  virtual void flush(const UniqueFd& file, const std::filesystem::path& path);
  /// Until the names in a folder are on the disk.
  virtual void flush_folder(const std::filesystem::path& path);
  /// `to` must not exist, or be a file where `from` is one.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// A file or an empty folder; it need not exist.
  virtual void remove(const std::filesystem::path& path);

  /// make_folder() for it and those it lies in; the names of new ones are on the disk then.
  void make_folders(const std::filesystem::path& path);
  /// remove() for it and all that is in it.
  void remove_all(const std::filesystem::path& path);
};

}  // namespace gradwire

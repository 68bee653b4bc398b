#pragma once

#include <filesystem>
#include <string>

#include "gradwire/base/unique_fd.h"
#include "gradwire/checkpoint/disk.h"

namespace gradwire::checkpoint {

/// One attempt to save a checkpoint, as other savers in the same folder see it. The checkpoint is
/// written in `.step-000300.5f3a.partial`; the lock file `.step-000300.5f3a.lock` exists from
/// before that folder until after it. Every participating rank holds a shared lock on the lock file
/// (an OFD lock, fcntl(2)) and appends its host to it. The kernel, or the server of a network file
/// system, releases the lock when the process ends for any reason.
class SaveLock {
 public:
  /// All ranks of an attempt may construct it at the same time. `token`: unique to this attempt. A
  /// file system without locks is no error: other savers then judge by time, see is_abandoned().
  /// Throws Exception(system).
  SaveLock(Disk& disk, const std::filesystem::path& folder, const std::string& name,
           const std::string& token);

  /// Folder in which the checkpoint is written until it is complete.
  const std::filesystem::path& partial() const { return partial_; }
  const std::filesystem::path& file() const { return file_; }

  /// Unlocks and removes the lock file; called after the partial folder is gone. Throws
  /// Exception(system).
  void release();

 private:
  Disk& disk_;
  std::filesystem::path partial_;
  std::filesystem::path file_;
  UniqueFd fd_;
};

/// Returns true if no process will complete the attempt whose files are `stem` + ".partial" and
/// ".lock".
///
/// It is certain if the lock is not held and all ranks that held it ran on this host since it
/// booted. Locks of other hosts may be invisible here, or not exist. In that case an attempt is
/// abandoned if it has not changed for 15 minutes by the file system's clock (`now`).
bool is_abandoned(const std::filesystem::path& stem, std::filesystem::file_time_type now);

}  // namespace gradwire::checkpoint

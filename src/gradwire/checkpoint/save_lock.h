#pragma once

#include <filesystem>
#include <string>

#include "gradwire/base/unique_fd.h"
#include "gradwire/checkpoint/disk.h"

namespace gradwire {

/// One attempt to save a checkpoint, as it is seen by others who save in the same folder:
/// `.step-000300.5f3a.partial`, where it is written, and `.step-000300.5f3a.lock`, which is there
/// from before until after. Every rank that takes part holds the lock file locked (an OFD lock,
/// fcntl(2)), and writes into it on which host it is; the kernel, or the server of a network's file
/// system, unlocks it when the process ends, however it ends.
class SaveLock {
 public:
  /// Several ranks may make that of one attempt at once. `token`: of this attempt alone. A file
  /// system that has no locks is no error: others then go by time, see is_abandoned(). Throws
  /// Exception(system).
  SaveLock(Disk& disk, const std::filesystem::path& folder, const std::string& name,
           const std::string& token);

  /// Where the checkpoint is written until it is complete.
  const std::filesystem::path& partial() const { return partial_; }
  const std::filesystem::path& file() const { return file_; }

  /// Unlocks and removes the file; to be called when the partial folder is no more. Throws
  /// Exception(system).
  void release();

 private:
  Disk& disk_;
  std::filesystem::path partial_;
  std::filesystem::path file_;
  UniqueFd fd_;
};

/// Whether nobody will ever complete the attempt whose files are `stem` + ".partial" and ".lock".
/// If nobody holds its lock, and all who did were on this host since it was started: yes. Locks of
/// other hosts may be invisible here, or not exist: then only what has not changed for 15 minutes,
/// by the file system's clock (`now`), is abandoned.
bool is_abandoned(const std::filesystem::path& stem, std::filesystem::file_time_type now);

}  // namespace gradwire

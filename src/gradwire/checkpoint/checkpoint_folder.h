#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/save_lock.h"

namespace gradwire {

/// A folder of checkpoints looks like this; each is a folder, which is there whole or not at all:
///
///     checkpoints/step-000100/manifest.json, rank-0-of-4.safetensors, ...
///     checkpoints/step-000200/...
///     checkpoints/.step-000300.5f3a.lock          held by who writes it: save_lock.h
///     checkpoints/.step-000300.5f3a.partial/...   being written, or left by one that was killed
///     checkpoints/.step-000000.1c90.old/...       being removed, likewise

/// A checkpoint in such a folder.
struct FoundCheckpoint {
  std::filesystem::path path;
  std::int64_t step = -1;
  std::int64_t sequence = -1;  ///< Greater: newer.
  int ranks = 0;
  std::uint64_t bytes = 0;  ///< Of its files.
  std::string damage;       ///< Why it cannot be used, as far as the manifest tells; empty: it can.
};

/// All of them, in the order in which they were written; the damaged ones first, as it is not known
/// when they were; none if there is no such folder. What is in it cannot make it fail. Throws
/// Exception(system) if it cannot be listed.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder);

/// There is no checkpoint, damaged or not: Exception(invalid_argument).
class NoCheckpoint final : public Exception {
 public:
  explicit NoCheckpoint(const std::string& message)
      : Exception(ErrorKind::invalid_argument, message) {}
};

/// The checkpoint that a user means by `path`: it itself, the newest in that folder of checkpoints
/// or in the folder `checkpoints` there, or, if it is a file (the model that a run left), beside
/// it. A damaged one may be the newest, so where there is one in the folder, no other is chosen.
/// Throws Exception(invalid_argument) that names the damaged one and the remedies, or NoCheckpoint
/// that says what is there instead.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// The text of a checkpoint's manifest, unread. Throws Exception(invalid_argument).
std::string manifest_text_of(const std::filesystem::path& checkpoint);

/// Reads a checkpoint's manifest. Throws Exception(invalid_argument).
Manifest read_manifest(const std::filesystem::path& checkpoint);

/// "step-000123", or "step-000123.2" and so on if `taken` says so.
std::string checkpoint_name(std::int64_t step,
                            const std::function<bool(const std::string&)>& taken);

/// "rank-2-of-4.safetensors".
std::string shard_name(int rank, int ranks);

/// Removes what savers that are gone left in `folder`: attempts that is_abandoned() knows, and what
/// was being removed. Other attempts stay, `own` among them. Several ranks may at once.
void remove_leftovers(Disk& disk, const std::filesystem::path& folder, const SaveLock& own);

/// Completes a checkpoint all whose other files are in `partial`: writes the manifest, and gives
/// the folder its name, the one act by which the checkpoint is there. That is `checkpoint`; with
/// `other_name`, and if another saver has taken that name meanwhile, the same with ".2" and so on.
/// Returns it. Throws Exception.
std::filesystem::path complete_checkpoint(Disk& disk, const std::filesystem::path& partial,
                                          const std::filesystem::path& checkpoint,
                                          const Manifest& manifest, bool other_name);

/// Throws Exception(invalid_argument) that names a file of a complete checkpoint if it is not there
/// with the size that was written, or cannot be read.
void check_written(const std::filesystem::path& checkpoint, const ManifestFile& file);

/// Removes a complete checkpoint, so that it is never seen in part, whenever the machine fails.
/// Another saver may do so at the same time.
void remove_checkpoint(Disk& disk, const std::filesystem::path& checkpoint);

}  // namespace gradwire

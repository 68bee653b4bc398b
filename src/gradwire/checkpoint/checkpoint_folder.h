#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/save_lock.h"

namespace gradwire::checkpoint {

/// Layout of a folder of checkpoints. Each checkpoint is a folder, which appears complete or not at
/// all:
///
///     checkpoints/step-000100/manifest.json, rank-0-of-4.safetensors, ...
///     checkpoints/step-000200/...
///     checkpoints/.step-000300.5f3a.lock          held by the ranks that write it: save_lock.h
///     checkpoints/.step-000300.5f3a.partial/...   being written, or left by a killed saver
///     checkpoints/.step-000000.1c90.old/...       being removed, or left by a killed saver

/// A checkpoint in such a folder.
struct FoundCheckpoint {
  std::filesystem::path path;
  std::int64_t step = -1;
  std::int64_t sequence = -1;  ///< The newest checkpoint has the maximum.
  int ranks = 0;
  std::uint64_t bytes = 0;  ///< Sum over its files.
  std::string damage;       ///< Why it cannot be used, by its manifest; empty if it can.
};

/// Returns all checkpoints in `folder` in the order in which they were written; none if the folder
/// does not exist. Damaged ones come first, as their order is unknown; no content of the folder
/// makes the call fail. Throws Exception(system) if the folder cannot be listed.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder);

/// Exception(invalid_argument): no checkpoint exists, damaged or not.
class NoCheckpoint final : public Exception {
 public:
  explicit NoCheckpoint(const std::string& message)
      : Exception(ErrorKind::invalid_argument, message) {}
};

/// Returns the checkpoint that `path` names: `path` itself, or the newest one in `path` or
/// `path`/checkpoints. If `path` is a file (the model that a run wrote), looks in the file's folder
/// in the same way.
///
/// A damaged checkpoint may be the newest, so none is chosen from a folder that has one. In that
/// case throws Exception(invalid_argument), which names the damaged checkpoint and the remedies.
/// Throws NoCheckpoint, which says what was found instead, if there is no checkpoint.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Returns the text of a checkpoint's manifest, not parsed. Throws Exception(invalid_argument).
std::string manifest_text_of(const std::filesystem::path& checkpoint);

/// Reads a checkpoint's manifest. Throws Exception(invalid_argument).
Manifest read_manifest(const std::filesystem::path& checkpoint);

/// Returns the first of "step-000123", "step-000123.2", "step-000123.3", ... for which `taken`
/// returns false.
std::string checkpoint_name(std::int64_t step,
                            const std::function<bool(const std::string&)>& taken);

/// Returns "rank-2-of-4.safetensors".
std::string shard_name(int rank, int ranks);

/// Removes the leftovers of dead savers in `folder`: attempts for which is_abandoned() returns
/// true, and checkpoints whose removal was interrupted. Keeps all other attempts, including `own`.
/// Several ranks may call it at the same time.
void remove_leftovers(Disk& disk, const std::filesystem::path& folder, const SaveLock& own);

/// Completes a checkpoint whose other files are all in `partial`: writes the manifest, then renames
/// the folder to `checkpoint`. That one rename makes the checkpoint visible. If another saver has
/// taken the name and `other_name` is set, appends ".2", ".3" and so on. Returns the name used.
/// Throws Exception.
std::filesystem::path complete_checkpoint(Disk& disk, const std::filesystem::path& partial,
                                          const std::filesystem::path& checkpoint,
                                          const Manifest& manifest, bool other_name);

/// Throws Exception(invalid_argument), which names the file, if a file of a complete checkpoint is
/// missing, has another size than was written, or cannot be read.
void check_written(const std::filesystem::path& checkpoint, const ManifestFile& file);

/// Removes a complete checkpoint. It is never visible in part, even if the machine fails. Another
/// saver may remove it at the same time.
void remove_checkpoint(Disk& disk, const std::filesystem::path& checkpoint);

}  // namespace gradwire::checkpoint

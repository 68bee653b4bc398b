#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/checkpoint/manifest.h"

namespace gradwire {

/// A folder of checkpoints looks like this; each is a folder, which is there whole or not at all:
///
///     checkpoints/step-000100/manifest.json, rank-0-of-4.safetensors, ...
///     checkpoints/step-000200/...
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

/// The complete ones, in the order in which they were written; none if there is no such folder.
/// Throws Exception(system) if it cannot be listed.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder);

/// The checkpoint that a user means by `path`: it itself, the newest in that folder of checkpoints
/// or in the folder `checkpoints` there, or, if it is a file (the model that a run left), beside
/// it. Throws Exception(invalid_argument) that says what is there instead.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Reads a checkpoint's manifest. Throws Exception(invalid_argument).
Manifest read_manifest(const std::filesystem::path& checkpoint);

/// "step-000123", or "step-000123.2" and so on if `taken` says so.
std::string checkpoint_name(std::int64_t step,
                            const std::function<bool(const std::string&)>& taken);

/// "rank-2-of-4.safetensors".
std::string shard_name(int rank, int ranks);

/// Where a checkpoint is written until it is complete. `token`: of this one attempt.
std::filesystem::path partial_folder(const std::filesystem::path& folder, const std::string& name,
                                     const std::string& token);

/// Removes what killed savers left in `folder`, but for the attempt `token`. Several ranks may at
/// once.
void remove_leftovers(Disk& disk, const std::filesystem::path& folder, const std::string& token);

/// Completes a checkpoint all whose other files are in `partial`: writes the manifest, and gives
/// the folder its name: the one act by which the checkpoint is there.
void complete_checkpoint(Disk& disk, const std::filesystem::path& partial,
                         const std::filesystem::path& checkpoint, const Manifest& manifest);

/// Removes a complete checkpoint, so that it is never seen in part.
void remove_checkpoint(Disk& disk, const std::filesystem::path& checkpoint);

}  // namespace gradwire

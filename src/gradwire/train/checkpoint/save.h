#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradwire/checkpoint/disk.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// What goes into a checkpoint, on one rank.
struct CheckpointContent {
  std::vector<TensorPiece> pieces;        ///< Of what all ranks have together.
  std::vector<NamedTensor> rank_tensors;  ///< What this rank has for itself.
  std::string model = "{}";               ///< JSON, for people: what the model is. Rank 0's counts.
  std::string run = "{}";                 ///< JSON: what is the same on all ranks. Rank 0's counts.
};

struct SavePlace {
  /// Of checkpoints. One that all ranks see, or a folder of each host with the files of its ranks.
  std::filesystem::path folder = "checkpoints";
  std::int64_t keep = 2;  ///< How many of the newest remain; 0: all.
  Disk* disk = nullptr;   ///< Null: the real one.
};

/// Writes a checkpoint, every rank its part at the same time: folder/step-000123. What several
/// ranks have is divided among those. It appears whole or not at all, and older ones go only
/// after. Also removes what killed savers left. Returns where it is. Collective. Throws Exception,
/// on all ranks, with what went wrong on which; older checkpoints are then as they were.
std::filesystem::path save_pieces(c10d::ProcessGroup& group, const CheckpointContent& content,
                                  std::int64_t step, const SavePlace& place);

}  // namespace gradwire

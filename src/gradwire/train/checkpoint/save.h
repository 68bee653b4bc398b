#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/checkpoint/manifest.h"
#include "gradwire/checkpoint/piece_plan.h"
#include "gradwire/host/group.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/tensor_piece.h"

namespace gradwire {

/// The content of a checkpoint on one rank.
struct CheckpointContent {
  std::vector<TensorPiece> pieces;        ///< Tensors shared by all ranks.
  std::vector<NamedTensor> rank_tensors;  ///< This rank's own tensors.
  std::string model = "{}";               ///< JSON, for users: the model. Rank 0's is saved.
  /// JSON: state that is the same on all ranks. Rank 0's is saved.
  std::string run = "{}";
};

/// Writes a checkpoint folder/step-000123; all ranks write their parts concurrently. Replicated
/// tensors are divided among the ranks that hold them. The checkpoint appears atomically; older
/// ones are removed only afterwards. Also removes what killed jobs left behind. Returns the path of
/// the checkpoint. Collective. Throws Exception on all ranks, with the failure and the rank; older
/// checkpoints are then unchanged.
std::filesystem::path save_pieces(c10d::ProcessGroup& group, const CheckpointContent& content,
                                  std::int64_t step, const SavePlace& place);

/// Gathers a model whose tensors are spread over ranks, without optimizer states. Returns its whole
/// tensors, sorted by name, on rank 0, and nothing elsewhere. Collective. Throws
/// Exception(invalid_argument) as save_pieces() does.
std::vector<NamedTensor> gather_model(c10d::ProcessGroup& group,
                                      const std::vector<TensorPiece>& pieces);

}  // namespace gradwire

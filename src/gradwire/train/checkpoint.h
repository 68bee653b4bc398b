#pragma once

#include <cstdint>
#include <filesystem>

#include "gradwire/train/rank_state.h"

namespace gradwire {

/// Writes the model alone (rank 0).
void save_model(const std::filesystem::path& path, const RunState& run);

/// Writes a checkpoint after `step` steps: the model, and beside it for each rank
/// STEM.stepN.rankR.safetensors with what else the run needs to go on with the same bits. Whenever
/// it is interrupted, one whole checkpoint is there: the model's file, which comes last, names the
/// step. Removes the files of the checkpoint after `previous` steps (< 0: none). Collective. Throws
/// Exception.
void save_checkpoint(const std::filesystem::path& path, const RunState& run, std::int64_t step,
                     std::int64_t previous);

/// Takes such a checkpoint up; returns its step. Rank 0 reads the model, every rank its own file.
/// Collective. Throws Exception(invalid_argument), on all ranks: a file is missing or damaged, a
/// tensor has another shape (names it), another number of ranks.
std::int64_t load_checkpoint(const std::filesystem::path& path, const RunState& run);

}  // namespace gradwire

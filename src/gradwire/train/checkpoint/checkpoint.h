#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gradwire/gradient/averager.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/group.h"
#include "gradwire/train/local_sgd.h"
#include "gradwire/train/loss_scaler.h"

namespace gradwire {

/// All that decides how a run goes on. What is null is not there.
struct RunState {
  ProcessGroup group;
  Checkpointable& model;         ///< Parameters, buffers, optimiser states: ReplicatedModel, ZeRO.
  Averager* feedback = nullptr;  ///< Of gradients: DataParallel's reducer()->averager().
  LossScaler* scaler = nullptr;
  LocalSgd* local = nullptr;       ///< With it each rank has parameters of its own.
  std::string description = "{}";  ///< JSON: what the model is, for people and messages.
  std::string position = "{}";     ///< JSON: where the run is; handed back by load_checkpoint().
};

/// Saves a run after `step` steps; its random numbers too. Collective, as save_pieces().
std::filesystem::path save_checkpoint(const RunState& run, std::int64_t step,
                                      const SavePlace& place);

/// A run that goes on.
struct ResumedRun {
  std::int64_t step = 0;
  std::string position;        ///< RunState::position of the run that saved.
  std::filesystem::path path;  ///< The checkpoint.
  std::string summary;         ///< One line for people: from where, and what began anew.
};

/// Takes a run up from a checkpoint, on any number of ranks, whatever divided the model when it was
/// saved. On as many ranks as saved it, it goes on with the same bits. On others, what each rank
/// had for itself begins anew (random numbers, error feedback, local steps), and the summary says
/// so. `path`: as find_checkpoint() takes it. Collective. Throws Exception(invalid_argument), the
/// same on all ranks: it is not there, damaged, incomplete, of another model or optimiser.
ResumedRun load_checkpoint(const std::filesystem::path& path, const RunState& run);

/// Whether rank 0 sees any checkpoint in `folder`. Collective.
bool any_checkpoint(c10d::ProcessGroup& group, const std::filesystem::path& folder);

/// Writes the model alone, for people to open; `description`: JSON. To be called on one rank that
/// has all of it.
void save_model(const std::filesystem::path& path, const torch::nn::Module& module,
                const std::string& description);

}  // namespace gradwire

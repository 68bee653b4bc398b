#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradwire/exchange/exchange.h"
#include "gradwire/host/group.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/local_sgd/local_sgd.h"
#include "gradwire/train/optim/mixed_precision.h"

namespace gradwire {

namespace checkpoint {
class Disk;
}

/// Everything that determines how a run continues. Null: not part of the run.
struct RunState {
  ProcessGroup group;
  Checkpointable& model;  ///< Parameters, buffers, optimizer states: ReplicatedModel, ZeRO.
  /// Exchanges with error feedback: DataParallel's or Zero's, or those of a pipeline's stages.
  std::vector<exchange::Exchange*> feedback = {};
  LossScaler* scaler = nullptr;
  LocalSgd* local = nullptr;       ///< Local SGD; each rank then has its own parameters.
  std::string mesh = {};           ///< How ranks divide the work ("4 ranks: pipeline 2 x data 2").
  std::string description = "{}";  ///< JSON: description of the model, for users and messages.
  std::string position = "{}";     ///< JSON: progress of the run; load_checkpoint() returns it.
};

struct SavePlace {
  /// Folder of checkpoints: one that all ranks see, or one per host for the files of its ranks.
  std::filesystem::path folder = "checkpoints";
  std::int64_t keep = 2;             ///< Number of newest checkpoints to keep; 0: all.
  checkpoint::Disk* disk = nullptr;  ///< File-system interface; null: the real one.
};

/// Saves a run after `step` steps, including its random-generator states. Collective, as
/// save_pieces().
std::filesystem::path save_checkpoint(const RunState& run, std::int64_t step,
                                      const SavePlace& place);

/// A resumed run.
struct ResumedRun {
  std::int64_t step = 0;
  std::string position;        ///< RunState::position of the run that saved.
  std::filesystem::path path;  ///< The checkpoint.
  std::string summary;         ///< One line for logs: checkpoint, and state that was reset.
};

/// Restores a run from a checkpoint, on any number of ranks, however the model was sharded when it
/// was saved. On the same mesh, the run continues with the same bits. On another number of ranks,
/// or with another RunState::mesh, per-rank state (random numbers, error feedback, local steps) is
/// reset, as the summary states.
/// `path`: as in find_checkpoint(). Collective. Throws Exception(invalid_argument), the same on all
/// ranks, if the checkpoint is missing, damaged, incomplete, or of another model or optimizer.
ResumedRun load_checkpoint(const std::filesystem::path& path, const RunState& run);

/// Returns true if rank 0 sees any checkpoint in `folder`. Collective.
bool any_checkpoint(c10d::ProcessGroup& group, const std::filesystem::path& folder);

/// Writes the model alone, as a file for other tools; `description`: JSON. Call on one rank that
/// has the whole model.
void save_model(const std::filesystem::path& path, const torch::nn::Module& module,
                const std::string& description);
/// The same for a model given as its tensors.
void save_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                const std::string& description);

}  // namespace gradwire

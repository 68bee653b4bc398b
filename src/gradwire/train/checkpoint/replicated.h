#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/train/checkpoint/module_state.h"
#include "gradwire/train/data_parallel/data_parallel.h"

namespace gradwire {

/// Runs `act` on every rank and returns the results of all ranks. If it throws on any rank, all
/// ranks throw Exception(invalid_argument) with that rank's number and message. Collective.
std::vector<std::string> collective_try(c10d::ProcessGroup& group,
                                        const std::function<std::string()>& act);

/// Returns rank 0's text on every rank. Collective.
std::string broadcast_text(c10d::ProcessGroup& group, const std::string& text);

/// A model replicated on every rank, and its optimizers: DataParallel's.
///
///     gradwire::ReplicatedModel state(*model.module(), model.core());
///     gradwire::save_checkpoint({.group = group, .model = state}, step,
///                               {.folder = "checkpoints"});
class ReplicatedModel final : public Checkpointable {
 public:
  /// Uses the optimizers that `core` steps, or `optimizers` if you step your own. All arguments
  /// must outlive this.
  ReplicatedModel(const torch::nn::Module& module, DataParallelCore& core,
                  std::vector<torch::optim::Optimizer*> optimizers = {});

  /// Throws Exception(unsupported) for an optimizer whose states are not supported.
  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

 private:
  DataParallelCore& core_;
  ModuleState state_;
};

}  // namespace gradwire

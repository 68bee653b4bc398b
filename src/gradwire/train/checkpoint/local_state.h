#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/local_sgd/local_sgd.h"

namespace gradwire {

/// Prepares a local-SGD run for saving. Each rank's own parameters and optimizer states become
/// per-rank tensors. The shared ("outer") parameters become the model's, so that the run can resume
/// on any number of ranks. `content.pieces` are the rank's before, the shared ones after.
void split_local_state(LocalSgd& local, CheckpointContent& content);

/// Restores that state. On the same number of ranks, `saved` holds this rank's own tensors. On
/// another number, every rank starts with the outer parameters, a new inner optimizer and nothing
/// in flight. `pieces`: this rank's.
void load_local(CheckpointLoader& loader, LocalSgd& local, const std::vector<TensorPiece>& pieces,
                const std::map<std::string, torch::Tensor>& saved);

}  // namespace gradwire

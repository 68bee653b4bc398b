#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/local_sgd.h"

namespace gradwire {

/// With local steps every rank has parameters and optimisers of its own: they become the rank's
/// tensors, and in their place the common ("outer") parameters those of the model, which can go on
/// on any number of ranks. `content.pieces` are the rank's before, the common ones after.
void split_local_state(LocalSgd& local, CheckpointContent& content);

/// Loads that. On as many ranks: with `saved`, what this rank had. On others every rank begins with
/// the common parameters, a new optimiser inside, and nothing under way. `pieces`: this rank's.
void load_local(CheckpointLoader& loader, LocalSgd& local, const std::vector<TensorPiece>& pieces,
                const std::map<std::string, torch::Tensor>& saved);

}  // namespace gradwire

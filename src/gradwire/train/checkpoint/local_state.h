#pragma once

#include <map>
#include <string>
#include <vector>

#include "gradwire/exchange/exchange.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/checkpoint/save.h"
#include "gradwire/train/local_sgd/local_sgd.h"

namespace gradwire {

/// Returns copies of an exchange's state (error-feedback residuals) as 1-D tensors; names begin
/// with `prefix`.
std::vector<NamedTensor> state_of(exchange::Exchange& exchange, const std::string& prefix);

/// Restores an exchange from the state_of() of an earlier run; ignores other names. Throws
/// Exception(invalid_argument) that names the parameter, if one has another shape or type.
void load_state(exchange::Exchange& exchange, const std::map<std::string, torch::Tensor>& saved,
                const std::string& prefix);

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

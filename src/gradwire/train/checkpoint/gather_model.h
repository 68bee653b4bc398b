#pragma once

#include <vector>

#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/group.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Gathers a model whose tensors are spread over ranks, without optimizer states. Returns its whole
/// tensors, sorted by name, on rank 0, and nothing elsewhere. Collective.
std::vector<NamedTensor> gather_model(c10d::ProcessGroup& group,
                                      const std::vector<TensorPiece>& pieces);

}  // namespace gradwire

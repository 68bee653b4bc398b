#pragma once

#include <functional>

#include <torch/torch.h>

#include "gradwire/train/group.h"

namespace gradwire {

/// Sums over the ranks with the same subset number, without a group of their own; every rank of
/// `group` must call it with a tensor of as many elements. One subset: all-reduce. Several: parts
/// are added by one rank each, in the order of ranks, and gathered, which sends the bytes of an
/// all-reduce. No autograd.
torch::Tensor subset_sum(const torch::Tensor& x, const std::function<int(int rank)>& subset_of,
                         const ProcessGroup& group);

}  // namespace gradwire

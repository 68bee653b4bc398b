#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// A tensor that is the same on all P ranks of a group, of which each rank keeps 1/P of the
/// elements, in memory order. The last part is padded with zeros.
struct PartitionedTensor {
  torch::Tensor part;  ///< 1-D, this rank's part: ceil(elements / P).
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

/// Returns a copy of this rank's part; the whole tensor may then be freed.
PartitionedTensor own_part(const torch::Tensor& whole, const c10d::ProcessGroup& group);

/// Restores the whole tensor, bit for bit; a dense one keeps its strides. Collective. Throws
/// Exception.
torch::Tensor gathered(const PartitionedTensor& tensor, c10d::ProcessGroup& group);

}  // namespace gradwire

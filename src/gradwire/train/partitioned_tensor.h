#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// A tensor that all P ranks of a group have alike, of whose elements each keeps 1/P, in the order
/// in which they lie in memory; the last part is filled up with zeros.
struct PartitionedTensor {
  torch::Tensor part;  ///< 1-D, this rank's: ceil(elements / P).
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

/// This rank's part, copied: the whole may go.
PartitionedTensor own_part(const torch::Tensor& whole, const c10d::ProcessGroup& group);

/// The whole again, bit for bit and with the strides that it had if it was dense. Collective.
/// Throws Exception.
torch::Tensor gathered(const PartitionedTensor& tensor, c10d::ProcessGroup& group);

}  // namespace gradwire

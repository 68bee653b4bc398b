#include "gradwire/train/activation/partitioned_tensor.h"

#include <algorithm>

namespace gradwire {
namespace {

/// Returns a dense tensor's elements in memory order.
torch::Tensor in_memory_order(const torch::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1});
}

}  // namespace

PartitionedTensor own_part(const torch::Tensor& whole, const c10d::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const auto dense = whole.is_non_overlapping_and_dense() ? whole : whole.contiguous();
  const auto elements = dense.numel();
  const auto size = (elements + group.getSize() - 1) / group.getSize();
  const auto begin = std::min(elements, size * group.getRank());
  const auto count = std::min(size, elements - begin);
  auto part = torch::zeros({size}, dense.options().requires_grad(false));
  part.narrow(0, 0, count).copy_(in_memory_order(dense.detach()).narrow(0, begin, count));
  return {std::move(part), dense.sizes().vec(), dense.strides().vec()};
}

torch::Tensor gathered(const PartitionedTensor& tensor, c10d::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const auto size = tensor.part.numel();
  const auto flat = torch::empty({size * group.getSize()}, tensor.part.options());
  if (size > 0) {
    std::vector<std::vector<torch::Tensor>> parts{flat.split(size)};
    std::vector<torch::Tensor> own{tensor.part};
    group.allgather(parts, own)->wait();
  }
  auto whole = torch::empty({0}, flat.options());
  return whole.set_(flat.storage(), 0, tensor.sizes, tensor.strides);
}

}  // namespace gradwire

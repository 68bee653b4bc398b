#include "gradwire/train/parallel/parallel_dropout.h"

#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire {

torch::Tensor dropout_of_part(const torch::Tensor& part, double p, bool training,
                              std::int64_t dimension, std::int64_t size,
                              const ProcessGroup& group) {
  if (!training || p == 0 || group->getSize() == 1) return torch::dropout(part, p, training);
  auto sizes = part.sizes().vec();
  sizes[static_cast<std::size_t>(dimension < 0 ? dimension + part.dim() : dimension)] = size;
  const auto ones = torch::ones(sizes, part.options().requires_grad(false));
  return part * collective::own_part(torch::dropout(ones, p, true), dimension, group);
}

}  // namespace gradwire

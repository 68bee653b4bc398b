#include "gradwire/train/data_parallel/bucket.h"

#include <c10/util/strides.h>

#include "gradwire/train/memory/memory_tracker.h"

namespace gradwire {
namespace {

/// Returns a tensor that shares memory without being an autograd view, which optimizers refuse to
/// detach.
torch::Tensor share(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes,
                    at::IntArrayRef strides) {
  return torch::empty({0}, flat.options()).set_(flat.storage(), offset, sizes, strides);
}

torch::Tensor place_for(const torch::Tensor& parameter, const torch::Tensor& flat,
                        std::int64_t offset) {
  // Keep the parameter's strides if its layout is dense: optimizers then iterate over both in the
  // same order, and autograd accumulates without conversion.
  if (parameter.is_non_overlapping_and_dense()) {
    return share(flat, offset, parameter.sizes(), parameter.strides());
  }
  const auto dense = c10::contiguous_strides(parameter.sizes());
  return share(flat, offset, parameter.sizes(), dense);
}

}  // namespace

Bucket::Bucket(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::gradients);
  std::int64_t elements = 0;
  for (const auto& parameter : parameters) elements += parameter.numel();
  flat_ = torch::zeros({elements}, parameters.front().options().requires_grad(false));
  numbers_ = flat_.is_complex() ? torch::view_as_real(flat_).flatten() : flat_;
  std::int64_t offset = 0;
  for (const auto& parameter : parameters) {
    views_.push_back(place_for(parameter, flat_, offset));
    offset += parameter.numel();
  }
}

bool Bucket::holds(const torch::Tensor& gradient, std::size_t k) const {
  return gradient.defined() && gradient.data_ptr() == views_[k].data_ptr() &&
         gradient.strides() == views_[k].strides();
}

void Bucket::put(const torch::Tensor& gradient, std::size_t k, double scale) {
  auto place = views_[k];
  if (!gradient.defined()) {
    place.zero_();
  } else if (holds(gradient, k)) {
    if (scale != 1.0) place.mul_(scale);
  } else if (scale != 1.0) {
    torch::mul_out(place, gradient, torch::scalar_tensor(scale, gradient.options()));
  } else {
    place.copy_(gradient);
  }
}

}  // namespace gradwire

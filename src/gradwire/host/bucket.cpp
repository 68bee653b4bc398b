#include "gradwire/host/bucket.h"

#include <map>
#include <string>

#include <c10/util/strides.h>
#include <fmt/format.h>

#include "gradwire/memory/memory_tracker.h"

namespace gradwire {
namespace {

/// Returns size and kind of each parameter. Only parameters of the same kind may share a bucket.
/// Kinds are numbered in order of appearance.
std::vector<step::ParameterSize> sizes_of(const std::vector<NamedTensor>& parameters, bool compress,
                                          std::size_t min_elements,
                                          const std::set<std::string>& divided) {
  std::map<std::string, int> kinds;
  std::vector<step::ParameterSize> sizes;
  for (const auto& [name, tensor] : parameters) {
    const auto key =
        fmt::format("{} {} {} {}", torch::toString(tensor.scalar_type()), tensor.device().str(),
                    compress && skips_compression(tensor, min_elements) ? "exact" : "",
                    divided.contains(name) ? "divided" : "");
    const auto kind = kinds.emplace(key, static_cast<int>(kinds.size())).first->second;
    sizes.push_back({tensor.nbytes(), kind});
  }
  return sizes;
}

/// Elements of real type; a complex element has two.
std::size_t numbers_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * (tensor.is_complex() ? 2 : 1);
}

exchange::UnitTensor described(const NamedTensor& parameter, std::size_t offset) {
  const auto& tensor = parameter.tensor;
  const auto rows = tensor.dim() == 0 ? 1 : static_cast<std::size_t>(tensor.size(0));
  const auto elements = numbers_of(tensor);
  return {.name = parameter.name,
          .offset = offset,
          .rows = rows,
          .columns = rows == 0 ? 0 : elements / rows};
}

}  // namespace

bool skips_compression(const torch::Tensor& parameter, std::size_t min_elements) {
  return parameter.dim() < 2 || parameter.scalar_type() != torch::kFloat32 ||
         static_cast<std::size_t>(parameter.numel()) < min_elements;
}

BucketLayout lay_out_buckets(const std::vector<NamedTensor>& parameters,
                             const step::BucketLimits& limits, bool compress,
                             std::size_t codec_min_elements, const ArgumentName& name,
                             const std::set<std::string>& divided) {
  BucketLayout layout;
  layout.places.resize(parameters.size());
  layout.members =
      step::plan_buckets(sizes_of(parameters, compress, codec_min_elements, divided), limits);
  for (const auto& members : layout.members) {
    exchange::UnitShape shape;
    std::vector<torch::Tensor> tensors;
    for (const auto index : members) {
      layout.places[index] = {layout.buckets.size(), tensors.size()};
      tensors.push_back(parameters[index].tensor);
      shape.tensors.push_back(described(parameters[index], shape.count));
      shape.count += numbers_of(tensors.back());
    }
    shape.skip_compression = !compress || skips_compression(tensors.front(), codec_min_elements);
    layout.buckets.emplace_back(tensors);
    shape.type = reducible_type_of(layout.buckets.back().numbers(), name);
    layout.shapes.push_back(std::move(shape));
  }
  return layout;
}

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

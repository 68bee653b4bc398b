#include "gradwire/train/data_parallel/bucket_layout.h"

#include <map>
#include <string>

#include <fmt/format.h>
namespace gradwire {
namespace {

/// Returns size and kind of each parameter. Only parameters of the same kind may share a bucket.
/// Kinds are numbered in order of appearance.
std::vector<ParameterSize> sizes_of(const std::vector<NamedTensor>& parameters, bool compress,
                                    std::size_t min_elements) {
  std::map<std::string, int> kinds;
  std::vector<ParameterSize> sizes;
  for (const auto& [name, tensor] : parameters) {
    const auto key =
        fmt::format("{} {} {}", torch::toString(tensor.scalar_type()), tensor.device().str(),
                    compress && skips_compression(tensor, min_elements) ? "exact" : "");
    const auto kind = kinds.emplace(key, static_cast<int>(kinds.size())).first->second;
    sizes.push_back({tensor.nbytes(), kind});
  }
  return sizes;
}

/// Elements of real type; a complex element has two.
std::size_t numbers_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * (tensor.is_complex() ? 2 : 1);
}

UnitTensor described(const NamedTensor& parameter, std::size_t offset) {
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

BucketLayout lay_out_buckets(const std::vector<NamedTensor>& parameters, const BucketLimits& limits,
                             bool compress, std::size_t codec_min_elements,
                             const ArgumentName& name) {
  BucketLayout layout;
  layout.places.resize(parameters.size());
  layout.members = plan_buckets(sizes_of(parameters, compress, codec_min_elements), limits);
  for (const auto& members : layout.members) {
    UnitShape shape;
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

}  // namespace gradwire

#include "gradwire/train/optim/optimizers_common.h"

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {

void require_within(std::string_view optimizer, std::string_view name, double value, double min,
                    double max) {
  if (value >= min && value <= max) return;
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {} is {}; it must be from {} to {}",
                                                           optimizer, name, value, min, max));
}

void require_dense(std::string_view optimizer, const torch::Tensor& gradient) {
  if (gradient.layout() == torch::kStrided) return;
  throw Exception(
      ErrorKind::unsupported,
      fmt::format("{}: a gradient is sparse; construct its layer with sparse = false", optimizer));
}

torch::Tensor norm_of(const torch::Tensor& tensor) {
  const bool half = tensor.element_size() < 4;
  return torch::linalg_vector_norm(half ? tensor.to(torch::kFloat32) : tensor);
}

}  // namespace gradwire

#include "gradwire/train/optim/clipping.h"

#include <algorithm>
#include <optional>

namespace gradwire {

double square_of(const torch::Tensor& gradient) {
  if (!gradient.defined()) return 0;
  const auto norm =
      torch::linalg_vector_norm(gradient, 2, std::nullopt, false, torch::kFloat64).item<double>();
  return norm * norm;
}

double clipping_factor(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace gradwire

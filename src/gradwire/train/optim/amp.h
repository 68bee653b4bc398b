#pragma once

#include <vector>

#include <torch/torch.h>

#include "gradwire/train/optim/mixed_precision.h"

namespace gradwire {

/// Enables libtorch's CPU autocast to `precision` on this thread during its lifetime. Run forward
/// and loss inside, backward outside. No effect with fp32.
class [[nodiscard]] Autocast {
 public:
  explicit Autocast(Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool active_;
  bool was_enabled_ = false;
  at::ScalarType dtype_before_ = at::kBFloat16;
};

/// Divides the gradients by `scale`, in place. Returns false if any of them is not finite.
bool unscale_gradients(const std::vector<torch::Tensor>& parameters, double scale);

}  // namespace gradwire

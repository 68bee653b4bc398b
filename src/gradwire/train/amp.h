#pragma once

#include <vector>

#include <torch/torch.h>

#include "gradwire/train/precision.h"

namespace gradwire {

/// While it lives, this thread computes what gains from it in `precision` (libtorch's autocast on
/// the CPU): forward and loss belong inside, backward outside. fp32: changes nothing.
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

/// Divides the gradients by `scale`, in place. False if one of them is not finite.
bool unscale_gradients(const std::vector<torch::Tensor>& parameters, double scale);

}  // namespace gradwire

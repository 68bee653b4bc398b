#include "gradwire/train/optim/amp.h"

#include <ATen/autocast_mode.h>

namespace gradwire {

Autocast::Autocast(Precision precision) : active_(precision != Precision::fp32) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  dtype_before_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU,
                                   precision == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  // Autocast caches casts of parameters, which change before the next forward.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
  at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
}

bool unscale_gradients(const std::vector<torch::Tensor>& parameters, double scale) {
  const torch::NoGradGuard no_grad;
  bool finite = true;
  for (const auto& parameter : parameters) {
    auto gradient = parameter.grad();
    if (!gradient.defined()) continue;
    gradient.mul_(1 / scale);
    finite = finite && gradient.isfinite().all().item<bool>();
  }
  return finite;
}

}  // namespace gradwire

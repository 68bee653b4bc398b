#pragma once

#include <torch/torch.h>

namespace gradwire {

/// Squared Euclidean norm of a gradient, in double precision; 0 if it is undefined.
double square_of(const torch::Tensor& gradient);

/// Factor that clips gradients of this norm, all together, to `max_norm`: that of
/// torch::nn::utils::clip_grad_norm_. 1 if the norm is not a number.
double clipping_factor(double norm, double max_norm);

}  // namespace gradwire

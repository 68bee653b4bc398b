#include "gradwire/torch/vector_math.h"

#include <ATen/ATen.h>

namespace gradwire {

void initialize_vector_math() {
  // The static's initialization makes concurrent callers wait for the first.
  [[maybe_unused]] static const bool used = at::ones({8}, at::kFloat).exp().defined();
}

}  // namespace gradwire

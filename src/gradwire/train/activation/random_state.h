#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace gradwire {

/// Returns the state of torch's default generator for a device (dropout, torch::randn), as an
/// opaque byte tensor. Restoring it with set_random_state() repeats all draws exactly. Thread-safe;
/// threads share one generator.
torch::Tensor random_state(c10::Device device = torch::kCPU);

/// Sets the generator's state to `state`, a result of random_state() for that device. Throws
/// c10::Error for any other tensor.
void set_random_state(const torch::Tensor& state, c10::Device device = torch::kCPU);

/// Seeds the generator of that device only, as torch::manual_seed(seed) does.
void set_random_seed(std::uint64_t seed, c10::Device device = torch::kCPU);

}  // namespace gradwire

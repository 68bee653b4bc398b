#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace gradwire {

/// The state of the generator from which torch draws on a device (dropout, torch::randn): an opaque
/// byte tensor. With set_random_state, what is drawn repeats to the bit. Each is safe from any
/// thread; two threads that draw share the one generator.
torch::Tensor random_state(c10::Device device = torch::kCPU);

/// Draws go on from `state`, one that random_state() returned of that device. Throws c10::Error for
/// another tensor.
void set_random_state(const torch::Tensor& state, c10::Device device = torch::kCPU);

/// Draws go on as after torch::manual_seed(seed), on that device alone.
void set_random_seed(std::uint64_t seed, c10::Device device = torch::kCPU);

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "gradwire/host/named_tensor.h"

namespace gradwire {

/// CRC-32C of the state of PyTorch's default random number generator of the CPU.
std::uint32_t random_checksum();

/// Restores what a forward changes apart from gradients: buffers, and PyTorch's default random
/// number generators of the CPU and of the buffers' and parameters' devices. Not thread-safe.
class RestorePoint {
 public:
  /// Keeps copies of the present values.
  RestorePoint(std::vector<NamedTensor> buffers, const std::vector<NamedTensor>& parameters);

  void keep();
  void restore();

 private:
  struct RandomState {
    at::Generator generator;
    at::Tensor state;
  };

  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> copies_;
  std::vector<RandomState> random_;
};

}  // namespace gradwire

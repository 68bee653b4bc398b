#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace gradwire {

/// Some samples, stacked along dimension 0.
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
  std::int64_t own = 0;  ///< The first so many samples are not padding: SampledBatch::own.
};

}  // namespace gradwire

#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace gradwire {

/// Samples stacked along dimension 0.
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
  std::int64_t own = 0;  ///< The first `own` samples are not padding: SampledBatch::own.
};

}  // namespace gradwire

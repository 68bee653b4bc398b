#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/memory/memory_tracker.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/optim/amp.h"

namespace gradwire {

/// Returns the number of samples in each of `steps` equal parts of a batch of `samples`. Throws
/// Exception(invalid_argument) if the parts would be unequal, as they would weigh samples
/// differently.
std::int64_t micro_batch_size(std::int64_t samples, int steps);

/// Settings of accumulate().
struct Computing {
  Precision precision = Precision::fp32;
  double loss_scale = 1;           ///< Factor on the gradients; the returned loss is not scaled.
  TraceRecorder* trace = nullptr;  ///< Records forward and backward; may be null.
};

/// Runs forward and backward over a batch in `steps` equal parts and averages the gradients over
/// ranks once, at the end. The gradients are those of the whole batch; the memory is that of one
/// part. `inputs` and `targets` are split along dimension 0. `loss(output, targets)` must return
/// the mean over its samples. Returns the mean loss over the batch, detached.
template <class Model, class Loss>
torch::Tensor accumulate(Model& model, const torch::Tensor& inputs, const torch::Tensor& targets,
                         int steps, const Loss& loss, const Computing& computing = {}) {
  const auto size = micro_batch_size(inputs.size(0), steps);
  auto total = torch::zeros({});
  for (int step = 0; step < steps; ++step) {
    std::optional<NoSync> alone;
    if (step + 1 < steps) alone.emplace(model.sync_control());
    const MemoryScope memory(MemoryCategory::activations);
    torch::Tensor part;
    {
      const TraceScope scope(computing.trace, TraceKind::forward);
      const Autocast autocast(computing.precision);
      part =
          loss(model(inputs.narrow(0, step * size, size)), targets.narrow(0, step * size, size)) /
          steps;
    }
    const TraceScope scope(computing.trace, TraceKind::backward);
    (computing.loss_scale == 1 ? part : part * computing.loss_scale).backward();
    total = total + part.detach().to(total.scalar_type());
  }
  return total;
}

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <torch/torch.h>

#include "gradwire/data/sampler.h"

namespace gradwire {

/// Samples stacked along dimension 0.
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
  std::int64_t own = 0;  ///< The first `own` samples are not padding: SampledBatch::own.
};

/// Data set for training and evaluation. Copies share the data. `batch` only reads, so several
/// threads may call it at the same time.
struct DataSet {
  std::int64_t size = 0;  ///< Number of samples.
  std::function<Batch(const SampledBatch&)> batch;
};

/// Wraps an object with size() and batch() const.
template <class Data>
DataSet make_data_set(Data data) {
  const auto shared = std::make_shared<const Data>(std::move(data));
  return {.size = shared->size(),
          .batch = [shared](const SampledBatch& sampled) { return shared->batch(sampled); }};
}

}  // namespace gradwire

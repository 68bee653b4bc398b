#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "gradwire/data/batch.h"
#include "gradwire/data/sampler.h"

namespace gradwire {

/// Samples that training and evaluation take batches of, whatever they are. Copies share the data.
/// `batch` reads only: threads may call it at the same time.
struct DataSet {
  std::int64_t size = 0;  ///< Samples.
  std::function<Batch(const SampledBatch&)> batch;
};

/// Of anything that has size() and batch() const.
template <class Data>
DataSet make_data_set(Data data) {
  const auto shared = std::make_shared<const Data>(std::move(data));
  return {.size = shared->size(),
          .batch = [shared](const SampledBatch& sampled) { return shared->batch(sampled); }};
}

}  // namespace gradwire

#pragma once

#include <optional>

#include "gradwire/data/data_set.h"
#include "gradwire/data/prefetch.h"
#include "gradwire/data/sampler.h"

namespace gradwire {

/// A rank's batches of one epoch, from index `first` on, prefetched on a thread.
class BatchStream {
 public:
  BatchStream(const DataSet& data, Sampler sampler, std::int64_t epoch, std::size_t ahead,
              std::int64_t first = 0);

  /// Returns the next batch, or nullopt at the end of the epoch.
  std::optional<Batch> next() { return batches_.next(); }

 private:
  Prefetcher<Batch> batches_;
};

}  // namespace gradwire

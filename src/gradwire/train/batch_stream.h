#pragma once

#include <optional>

#include "gradwire/data/data_set.h"
#include "gradwire/data/prefetch.h"
#include "gradwire/data/sampler.h"

namespace gradwire {

/// A rank's batches of one epoch, from number `first` on, prepared ahead on a thread.
class BatchStream {
 public:
  BatchStream(const DataSet& data, Sampler sampler, std::int64_t epoch, std::size_t ahead,
              std::int64_t first = 0);

  /// The next batch; nothing at the epoch's end.
  std::optional<Batch> next() { return batches_.next(); }

 private:
  Prefetcher<Batch> batches_;
};

}  // namespace gradwire

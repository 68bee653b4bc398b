#pragma once

#include <optional>

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/data/prefetch.h"
#include "gradwire/data/sampler.h"

namespace gradwire {

/// A rank's batches of one epoch, prepared ahead on a thread. `data` must outlive it.
class BatchStream {
 public:
  BatchStream(const ImageData& data, Sampler sampler, std::int64_t epoch, std::size_t ahead);

  /// The next batch; nothing at the epoch's end.
  std::optional<Batch> next() { return batches_.next(); }

 private:
  Prefetcher<Batch> batches_;
};

}  // namespace gradwire

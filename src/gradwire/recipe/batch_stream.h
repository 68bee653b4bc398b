#pragma once

#include <optional>

#include "gradwire/data/data_set.h"
#include "gradwire/data/fashion_mnist.h"
#include "gradwire/data/prefetch.h"
#include "gradwire/data/sampler.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Loads the data set that a configuration names: the whole test set, or up to DataConfig::limit
/// training samples. Throws Exception(invalid_argument) that says what to install.
DataSet load_data(const DataConfig& config, Split split);

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

}  // namespace gradwire::recipe

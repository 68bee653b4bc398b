#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// Averages buckets of any type uncompressed, each in one all-reduce. Lossless and stateless.
/// `timeout`: of each bucket; if empty, the communicator's.
std::unique_ptr<Averager> dense_averager(std::shared_ptr<Communicator> communicator,
                                         std::vector<BucketShape> buckets,
                                         std::optional<Duration> timeout = {});

}  // namespace gradwire

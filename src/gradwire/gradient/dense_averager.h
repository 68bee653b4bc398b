#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gradwire/gradient/averager.h"

namespace gradwire {

/// Buckets travel as they are, of any type, each in one all-reduce. Nothing is lost, and there is
/// no state. `timeout`: of each bucket; nothing: the communicator's.
std::unique_ptr<Averager> dense_averager(std::shared_ptr<Communicator> communicator,
                                         std::vector<BucketShape> buckets,
                                         std::optional<Duration> timeout = {});

}  // namespace gradwire

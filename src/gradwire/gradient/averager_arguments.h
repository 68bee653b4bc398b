#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/gradient/averager.h"

/// Argument checks of averagers. All throw Exception(invalid_argument).
namespace gradwire {

/// Checks that `data` has the count and type of `buckets[bucket]`.
void check_start(const std::vector<BucketShape>& buckets, std::size_t bucket, const LentSpan& data);

/// Checks that a bucket is not started again before it was waited for.
void check_idle(std::size_t bucket, bool in_flight);

/// Checks that all buckets without skip_compression are float32; the error names the first tensor
/// that is not.
void check_codable(const std::vector<BucketShape>& buckets, const std::string& codec);

}  // namespace gradwire

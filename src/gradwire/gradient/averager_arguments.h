#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/gradient/averager.h"

/// What averagers accept. All throw Exception(invalid_argument).
namespace gradwire {

/// `data` is what `buckets[bucket]` says it is.
void check_start(const std::vector<BucketShape>& buckets, std::size_t bucket, const LentSpan& data);

/// A bucket is started once, then waited for.
void check_idle(std::size_t bucket, bool under_way);

/// What is not `exact` is float32; names the tensor that is not.
void check_codable(const std::vector<BucketShape>& buckets, const std::string& codec);

}  // namespace gradwire

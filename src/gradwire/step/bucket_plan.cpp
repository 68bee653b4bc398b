#include "gradwire/step/bucket_plan.h"

#include <algorithm>
#include <functional>
#include <map>

namespace gradwire::step {
namespace {

/// The parameters of one kind, and the bucket of that kind that is being filled.
struct OpenBucket {
  std::size_t left = 0;  ///< Bytes of this kind that are not in any bucket yet.
  std::size_t buckets = 0;
  std::vector<std::size_t> parameters;
  std::size_t bytes = 0;
  std::size_t limit = 0;
};

/// Maximum bytes of the next bucket of this kind.
std::size_t limit_of(const OpenBucket& kind, const BucketLimits& limits) {
  const std::size_t usual = kind.buckets == 0 ? limits.first_bytes : limits.bytes;
  return std::min(usual, std::max(limits.last_bytes, kind.left / 2));
}

}  // namespace

BucketLimits limits_capped_at(double megabytes) {
  const auto cap = static_cast<std::size_t>(megabytes * (1 << 20));
  const BucketLimits usual;
  return {.first_bytes = std::min(usual.first_bytes, cap),
          .bytes = cap,
          .last_bytes = std::min(usual.last_bytes, cap)};
}

std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<ParameterSize>& parameters,
                                                   const BucketLimits& limits) {
  std::vector<std::vector<std::size_t>> plan;
  std::map<int, OpenBucket> open;
  for (const ParameterSize& parameter : parameters) open[parameter.kind].left += parameter.bytes;
  const auto close = [&plan](OpenBucket& bucket) {
    if (bucket.parameters.empty()) return;
    plan.push_back(std::move(bucket.parameters));
    bucket.parameters.clear();
    bucket.bytes = 0;
    ++bucket.buckets;
  };
  for (std::size_t index = parameters.size(); index-- > 0;) {
    const std::size_t bytes = parameters[index].bytes;
    OpenBucket& bucket = open[parameters[index].kind];
    if (bucket.bytes + bytes > bucket.limit) close(bucket);
    if (bucket.parameters.empty()) bucket.limit = limit_of(bucket, limits);
    bucket.parameters.push_back(index);
    bucket.bytes += bytes;
    bucket.left -= bytes;
  }
  for (auto& [kind, bucket] : open) close(bucket);
  // A bucket is complete when its last parameter is: launch buckets in that order.
  std::ranges::sort(plan, std::greater<>{}, [](const auto& bucket) { return bucket.back(); });
  return plan;
}

}  // namespace gradwire::step

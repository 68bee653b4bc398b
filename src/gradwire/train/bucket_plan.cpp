#include "gradwire/train/bucket_plan.h"

#include <algorithm>
#include <map>

namespace gradwire {
namespace {

struct OpenBucket {
  std::vector<std::size_t> parameters;
  std::size_t bytes = 0;
  bool first_of_kind = true;
};

}  // namespace

std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<ParameterSize>& parameters,
                                                   const BucketLimits& limits) {
  std::vector<std::vector<std::size_t>> plan;
  std::map<int, OpenBucket> open;
  const auto close = [&plan](OpenBucket& bucket) {
    if (!bucket.parameters.empty()) plan.push_back(std::move(bucket.parameters));
    bucket = {.first_of_kind = false};
  };
  for (std::size_t index = parameters.size(); index-- > 0;) {
    auto& bucket = open[parameters[index].kind];
    const auto limit = bucket.first_of_kind ? limits.first_bytes : limits.bytes;
    if (!bucket.parameters.empty() && bucket.bytes + parameters[index].bytes > limit) close(bucket);
    bucket.parameters.push_back(index);
    bucket.bytes += parameters[index].bytes;
  }
  for (auto& [kind, bucket] : open) close(bucket);
  // A bucket is full when its last parameter is: launch them in that order.
  std::ranges::sort(plan, std::greater<>{}, [](const auto& bucket) { return bucket.back(); });
  return plan;
}

}  // namespace gradwire

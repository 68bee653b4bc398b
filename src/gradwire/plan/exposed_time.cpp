#include "gradwire/plan/exposed_time.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace gradwire {
namespace {

/// Maximum and minimum share of the gradients in a bucket. The maximum gives as many buckets as
/// ResNet-50 has of 4 MiB, few enough to compute quickly.
constexpr double kMaxBucketShare = 1.0 / 48, kMinBucketShare = 1.0 / 3000;

struct Bucket {
  std::size_t first_layer = 0;
  double share = 0;  ///< Of the gradients.
  double ready = 0;  ///< Seconds since the start of backward.
  double done = 0;   ///< When its mean has arrived.
};

double backward_share(const ModelShape& model) {
  double share = 0;
  for (const ModelLayer& layer : model.layers) share += layer.backward;
  return share;
}

/// Returns the buckets in the order of backward.
std::vector<Bucket> buckets_of(const ModelShape& model, double backward) {
  const double all = static_cast<double>(model.parameters()), shares = backward_share(model);
  std::vector<Bucket> buckets;
  double time = 0, left = 1;
  bool open = false;
  for (std::size_t i = model.layers.size(); i-- > 0;) {
    const ModelLayer& layer = model.layers[i];
    time += backward * layer.backward / shares;
    if (layer.parameters == 0) continue;
    if (!open) buckets.emplace_back();
    Bucket& bucket = buckets.back();
    bucket.first_layer = i;
    bucket.share += static_cast<double>(layer.parameters) / all;
    left -= static_cast<double>(layer.parameters) / all;
    bucket.ready = time;
    // Buckets taper (gradient/bucket_plan.h), as nothing hides the last one.
    open = bucket.share < std::clamp(left, kMinBucketShare, kMaxBucketShare);
  }
  return buckets;
}

/// Sets `done` of each bucket, if the link always carries the ready bucket of the highest priority.
/// That is the last in the list if `urgent`, otherwise the first.
void carry(std::vector<Bucket>& buckets, const OverlapInput& input, bool urgent) {
  const std::size_t count = buckets.size();
  std::vector<double> left(count);
  for (std::size_t i = 0; i < count; ++i) left[i] = buckets[i].share * input.bandwidth;
  double time = 0;
  for (std::size_t open = count; open > 0;) {
    std::size_t chosen = count;
    double next = std::numeric_limits<double>::infinity();  // When another bucket becomes ready.
    for (std::size_t i = 0; i < count; ++i) {
      if (left[i] < 0) continue;
      if (buckets[i].ready > time) {
        next = std::min(next, buckets[i].ready);
      } else if (chosen == count || urgent) {
        chosen = i;
      }
    }
    if (chosen == count) {
      time = next;
      continue;
    }
    if (urgent && time + left[chosen] > next) {
      left[chosen] -= next - time;
      time = next;
      continue;
    }
    time += left[chosen];
    left[chosen] = -1;
    buckets[chosen].done = time + input.latency;
    --open;
  }
}

/// Returns the stall time of the next forward, in which each layer waits for its bucket.
double waits_of_forward(const ModelShape& model, const std::vector<Bucket>& buckets,
                        const OverlapInput& input) {
  const double shares = 1 - backward_share(model);
  double time = input.backward;
  std::size_t bucket = buckets.size();
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (bucket > 0 && buckets[bucket - 1].first_layer <= i) {
      time = std::max(time, buckets[bucket - 1].done);
      --bucket;
    }
    if (shares > 0) time += input.forward * model.layers[i].forward / shares;
  }
  return time - input.backward - input.forward;
}

}  // namespace

double exposed_time(const ModelShape& model, const OverlapInput& input) {
  if (input.bandwidth + input.latency <= 0) return 0;
  if (input.overlap == Overlap::none || backward_share(model) <= 0)
    return input.bandwidth + input.latency;
  std::vector<Bucket> buckets = buckets_of(model, input.backward);
  const bool full = input.overlap == Overlap::full;
  carry(buckets, input, full);
  if (full) return std::max(0.0, waits_of_forward(model, buckets, input));
  double end = 0;
  for (const Bucket& bucket : buckets) end = std::max(end, bucket.done);
  return std::max(0.0, end - input.backward);
}

}  // namespace gradwire

#include "gradwire/plan/hidden_time.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace gradwire {
namespace {

/// A bucket holds about this part of the gradients: as many buckets as 4 MiB ones of ResNet-50 are
/// few enough to be quick. And the least.
constexpr double kBucketShare = 1.0 / 48, kLeastShare = 1.0 / 3000;

struct Bucket {
  std::size_t first_layer = 0;
  double share = 0;  ///< Of the gradients.
  double ready = 0;  ///< Seconds from when backward begins.
  double done = 0;   ///< When its mean is there.
};

double backward_share(const ModelShape& model) {
  double share = 0;
  for (const ModelLayer& layer : model.layers) share += layer.backward;
  return share;
}

/// In the order of backward.
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
    // They taper (gradient/bucket_plan.h): nothing can hide the last one.
    open = bucket.share < std::clamp(left, kLeastShare, kBucketShare);
  }
  return buckets;
}

/// Each bucket's `done`, if the link always carries the most urgent of those that are ready:
/// the last in the list, where `urgent`; otherwise the first.
void carry(std::vector<Bucket>& buckets, const OverlapInput& input, bool urgent) {
  const std::size_t count = buckets.size();
  std::vector<double> left(count);
  for (std::size_t i = 0; i < count; ++i) left[i] = buckets[i].share * input.bandwidth;
  double time = 0;
  for (std::size_t open = count; open > 0;) {
    std::size_t chosen = count;
    double next = std::numeric_limits<double>::infinity();  // When another becomes ready.
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

/// How long the next forward takes, longer than it computes, each layer waiting for its bucket.
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

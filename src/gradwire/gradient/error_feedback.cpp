#include "gradwire/gradient/error_feedback.h"

#include <algorithm>

#include <fmt/format.h>

namespace gradwire {
namespace {

LentSpan lend(std::span<float> values) {
  return {values.data(), values.size(), DataType::float32, nullptr};
}

}  // namespace

void ErrorFeedback::add_bucket(const BucketShape& shape, bool wanted,
                               const std::vector<CodedRange>& owned) {
  Bucket& bucket = buckets_.emplace_back();
  if (!wanted) return;
  bucket.tensors = shape.tensors;
  if (bucket.tensors.empty()) {
    bucket.tensors.push_back({fmt::format("bucket {}", buckets_.size() - 1), 0, shape.count, 1});
  }
  bucket.owned = owned;
  bucket.sent.resize(shape.count);
  bucket.mean.resize(bucket.owned_before(shape.count));
}

/// Number of owned elements among the first `element` ones.
std::size_t ErrorFeedback::Bucket::owned_before(std::size_t element) const {
  std::size_t sum = 0;
  for (const CodedRange& range : owned) {
    sum += std::min(std::max(element, range.begin), range.end) - range.begin;
  }
  return sum;
}

void ErrorFeedback::apply_residuals(std::size_t bucket, std::span<float> gradients, int ranks) {
  Bucket& residuals = buckets_[bucket];
  if (residuals.sent.empty()) return;
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] += residuals.sent[i];
  std::ranges::fill(residuals.sent, 0.0f);
  const auto times = static_cast<float>(ranks);
  const float* mean = residuals.mean.data();
  for (const CodedRange& range : residuals.owned) {
    for (std::size_t i = range.begin; i < range.end; ++i) gradients[i] += times * *mean++;
  }
  std::ranges::fill(residuals.mean, 0.0f);
}

std::vector<Averager::State> ErrorFeedback::state() {
  std::vector<Averager::State> all;
  for (Bucket& bucket : buckets_) {
    for (const BucketTensor& tensor : bucket.tensors) {
      const std::size_t count = tensor.rows * tensor.columns;
      const std::span<float> sent(bucket.sent);
      all.push_back({tensor.name + ".sent", lend(sent.subspan(tensor.offset, count))});
      const std::size_t before = bucket.owned_before(tensor.offset);
      const std::size_t owned = bucket.owned_before(tensor.offset + count) - before;
      if (owned == 0) continue;
      all.push_back({tensor.name + ".mean", lend(std::span(bucket.mean).subspan(before, owned))});
    }
  }
  return all;
}

}  // namespace gradwire

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/coded_averager_layout.h"

namespace gradwire {

/// What codecs have lost of the gradients, to be added to those of the next step: of this rank's
/// contributions ("sent"), and of the means that it makes as their owner ("mean"). Not thread-safe.
class ErrorFeedback {
 public:
  /// `owned`: the ranges of each bucket whose mean this rank makes, in order. A bucket that owns
  /// nothing and is not `wanted` has no memory.
  void add_bucket(const BucketShape& shape, bool wanted, const std::vector<CodedRange>& owned);

  /// As many values as the bucket has; none, if it has no memory.
  std::span<float> sent(std::size_t bucket) { return buckets_[bucket].sent; }

  /// Those of the owned ranges, one after the other.
  std::span<float> mean(std::size_t bucket) { return buckets_[bucket].mean; }

  /// Adds to a bucket's gradients all that is owed, so that their mean over `ranks` ranks lacks
  /// nothing of it, and owes nothing from then on.
  void pay(std::size_t bucket, std::span<float> gradients, int ranks);

  /// "PARAMETER.sent": the parameter's elements; "PARAMETER.mean": those of them that lie in owned
  /// ranges. Nothing for buckets without memory. A bucket without tensors counts as one: "bucket
  /// 3".
  std::vector<Averager::State> state();

 private:
  struct Bucket {
    std::vector<BucketTensor> tensors;
    std::vector<CodedRange> owned;
    std::vector<float> sent;
    std::vector<float> mean;
    std::size_t owned_before(std::size_t element) const;
  };
  std::vector<Bucket> buckets_;
};

}  // namespace gradwire

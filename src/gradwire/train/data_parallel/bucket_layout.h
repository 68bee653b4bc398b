#pragma once

#include <cstddef>
#include <vector>

#include <torch/torch.h>

#include "gradwire/exchange/exchange.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/data_parallel/bucket.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Assignment of parameters to buckets.
struct BucketLayout {
  struct Place {
    std::size_t bucket = 0;
    std::size_t position = 0;
  };
  std::vector<Bucket> buckets;
  /// Shapes of the buckets, as exchanges expect them.
  std::vector<UnitShape> shapes;
  std::vector<std::vector<std::size_t>> members;  ///< Per bucket: indices of its parameters.
  std::vector<Place> places;                      ///< Per parameter.
};

/// Returns true if codecs must not compress this gradient. True for scalars and vectors
/// (biases, norms), whose errors hurt most and whose bytes matter least. True for tensors with
/// fewer than `min_elements` elements, and for types other than float32.
bool skips_compression(const torch::Tensor& parameter, std::size_t min_elements);

/// Plans and allocates the buckets. With `compress`, uncompressed gradients have separate buckets.
/// Complex buckets have twice as many elements, of the real type. Throws Exception(unsupported),
/// about `name`, if a type cannot be reduced.
BucketLayout lay_out_buckets(const std::vector<NamedTensor>& parameters, const BucketLimits& limits,
                             bool compress, std::size_t codec_min_elements,
                             const ArgumentName& name);

}  // namespace gradwire

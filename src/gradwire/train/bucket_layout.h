#pragma once

#include <cstddef>
#include <vector>

#include <torch/torch.h>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/bucket_plan.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/bucket.h"
#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// Where each parameter's gradient lies.
struct BucketLayout {
  struct Place {
    std::size_t bucket = 0;
    std::size_t position = 0;
  };
  std::vector<Bucket> buckets;
  std::vector<BucketShape> shapes;                ///< Of the buckets, as averagers want them.
  std::vector<std::vector<std::size_t>> members;  ///< Of each bucket: parameters, by index.
  std::vector<Place> places;                      ///< Of each parameter.
};

/// Which gradients a codec leaves alone (Averager's `exact`): scalars and vectors (biases, norms),
/// whose errors hurt most and whose bytes count least; tensors of fewer elements than `least`;
/// other types than float32, which codecs do not take.
bool travels_exactly(const torch::Tensor& parameter, std::size_t least);

/// Plans and allocates the buckets. With `compress`, what travels exactly has buckets of its own.
/// Complex ones have twice as many elements, of real type. Throws Exception(unsupported), about
/// `name`, if a type cannot be reduced.
BucketLayout lay_out_buckets(const std::vector<NamedTensor>& parameters, const BucketLimits& limits,
                             bool compress, std::size_t codec_min_elements,
                             const ArgumentName& name);

}  // namespace gradwire

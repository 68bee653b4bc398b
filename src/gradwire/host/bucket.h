#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <torch/types.h>

#include "gradwire/exchange/exchange.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// The gradients of several parameters in one flat tensor, the buffer of the collective. Each
/// parameter's gradient becomes a view of it, so that averages need no copy back.
class Bucket {
 public:
  /// `parameters` must be dense, and of one type and device.
  explicit Bucket(const std::vector<torch::Tensor>& parameters);

  const torch::Tensor& flat() const { return flat_; }
  /// The flat tensor to communicate; of a complex one, its real view with two numbers per element.
  const torch::Tensor& numbers() const { return numbers_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(flat_.nbytes()); }
  std::size_t size() const { return views_.size(); }

  /// The k-th parameter's gradient as a view, with the parameter's own strides.
  const torch::Tensor& view(std::size_t k) const { return views_[k]; }

  /// Returns true if `gradient` is the k-th view already.
  bool holds(const torch::Tensor& gradient, std::size_t k) const;

  /// Writes scale * gradient to the k-th view; an undefined gradient counts as zero.
  void put(const torch::Tensor& gradient, std::size_t k, double scale);

 private:
  torch::Tensor flat_;
  torch::Tensor numbers_;  ///< Shares memory with flat_.
  std::vector<torch::Tensor> views_;
};

/// Assignment of parameters to buckets.
struct BucketLayout {
  struct Place {
    std::size_t bucket = 0;
    std::size_t position = 0;
  };
  std::vector<Bucket> buckets;
  /// Shapes of the buckets, as exchanges expect them.
  std::vector<exchange::UnitShape> shapes;
  std::vector<std::vector<std::size_t>> members;  ///< Per bucket: indices of its parameters.
  std::vector<Place> places;                      ///< Per parameter.
};

/// Returns true if codecs must not compress this gradient. True for scalars and vectors
/// (biases, norms), whose errors hurt most and whose bytes matter least. True for tensors with
/// fewer than `min_elements` elements, and for types other than float32.
bool skips_compression(const torch::Tensor& parameter, std::size_t min_elements);

/// Plans and allocates the buckets. With `compress`, uncompressed gradients have separate buckets;
/// parameters named in `divided` always have (divided_parameters()).
/// Complex buckets have twice as many elements, of the real type. Throws Exception(unsupported),
/// about `name`, if a type cannot be reduced.
BucketLayout lay_out_buckets(const std::vector<NamedTensor>& parameters,
                             const step::BucketLimits& limits, bool compress,
                             std::size_t codec_min_elements, const ArgumentName& name,
                             const std::set<std::string>& divided = {});

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

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

}  // namespace gradwire

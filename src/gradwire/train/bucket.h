#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// The gradients of some parameters in one flat tensor, whose memory is what travels. Each
/// parameter's gradient becomes a view of it, so that the averaged values need not be copied back.
class Bucket {
 public:
  /// `parameters` are dense, of one type and device.
  explicit Bucket(const std::vector<torch::Tensor>& parameters);

  const torch::Tensor& flat() const { return flat_; }
  /// What travels: the flat tensor, or the pairs of real numbers of a complex one.
  const torch::Tensor& numbers() const { return numbers_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(flat_.nbytes()); }
  std::size_t size() const { return views_.size(); }

  /// The place of the k-th parameter's gradient, with the parameter's own strides.
  const torch::Tensor& view(std::size_t k) const { return views_[k]; }

  /// Whether `gradient` already lies in its place.
  bool holds(const torch::Tensor& gradient, std::size_t k) const;

  /// Puts scale * gradient in its place; an undefined gradient counts as zero.
  void put(const torch::Tensor& gradient, std::size_t k, double scale);

 private:
  torch::Tensor flat_;
  torch::Tensor numbers_;  ///< The same memory.
  std::vector<torch::Tensor> views_;
};

}  // namespace gradwire

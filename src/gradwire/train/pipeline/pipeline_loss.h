#pragma once

#include <cstdint>
#include <functional>

#include <torch/torch.h>

namespace gradwire {

/// A loss as a sum and a count. The gradient of a step is that of the sum over all micro-batches
/// divided by the count over all, so that micro-batches of different sizes weigh their samples
/// equally.
struct PipelineLoss {
  /// Returns the sum of a micro-batch's losses, a scalar.
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> sum;
  /// Returns how many losses that sum has; depends on the target alone.
  std::function<double(const torch::Tensor& target)> count = samples_of;

  /// The first dimension.
  static double samples_of(const torch::Tensor& target) {
    return static_cast<double>(target.size(0));
  }
};

/// Cross-entropy of [..., classes] logits and [...] class indices; targets of `ignore` do not
/// count.
PipelineLoss cross_entropy_sum(std::int64_t ignore = -100);
/// Squared errors of all elements.
PipelineLoss squared_error_sum();

/// The losses of a step, on the ranks that have the last stage; a count of 0 on the others.
struct LossSum {
  double sum = 0;
  double count = 0;

  double mean() const { return count > 0 ? sum / count : 0; }
};

}  // namespace gradwire

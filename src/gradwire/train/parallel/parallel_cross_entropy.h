#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/train/pipeline/pipeline_loss.h"

namespace gradwire {

/// Cross-entropy of logits whose classes are divided over ranks, as ColumnParallelLinear returns
/// them, without gathering the logits. `logits`: [..., own part of classes]; `target`: [...] class
/// indices, replicated; those equal to `ignore` do not count. Returns the losses' sum, replicated.
///
/// Three values a token are all-reduced: the greatest logit, then together the target's logit and
/// the sum of exponentials. Backward communicates nothing. Computes in float32 at least. Throws
/// Exception(invalid_argument) if a target is not a class.
torch::Tensor cross_entropy_over_ranks(const torch::Tensor& logits, const torch::Tensor& target,
                                       std::int64_t classes, const ProcessGroup& group,
                                       std::int64_t ignore = -100);

/// The same as a loss of a Pipeline whose last layer is split over `group`.
PipelineLoss cross_entropy_sum_over_ranks(std::int64_t classes, ProcessGroup group,
                                          std::int64_t ignore = -100);

}  // namespace gradwire

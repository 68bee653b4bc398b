#pragma once

#include <cstdint>

#include "gradwire/recipe/train_config.h"

namespace gradwire {

/// Returns the factor on the learning rate at step `step` (from 0) of `total`, with
/// `steps_per_epoch`. The rate warms up linearly to 1 (Goyal et al., arXiv:1706.02677, section
/// 2.2). Then it is constant, or follows half a cosine down to final_fraction (Loshchilov, Hutter,
/// arXiv:1608.03983, equation 5, without restart).
double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total,
                            std::int64_t steps_per_epoch);

/// Returns the learning rate for a global batch of `batch_size` samples, scaled as `optimizer`
/// says. Linear scaling: Goyal et al., section 2.1. Square-root scaling keeps the variance of a
/// step (Krizhevsky, arXiv:1404.5997, section 5) and is what LAMB requires (You et al., ICLR 2020,
/// section 4.3).
double scaled_learning_rate(const OptimizerConfig& optimizer, std::int64_t batch_size);

}  // namespace gradwire

#pragma once

#include <torch/torch.h>

#include "gradwire/train/pipeline/hybrid_stages.h"

namespace gradwire {

/// Runs two samples through all stages, one after the other, and tells all ranks what passes
/// between them. Neither random numbers nor running statistics change. `inputs`: on the rank with
/// the first stage. `shapes`: the result, which `work` uses meanwhile. Collective. Throws
/// Exception(invalid_argument) for what cannot pass, or not with the options' codecs.
void find_shapes(const HybridStages& stages, const Pipeline::Options& options,
                 const torch::Tensor& inputs, PipelineStages& work, EdgeShapes& shapes);

}  // namespace gradwire

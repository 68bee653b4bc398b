#pragma once

#include <cstdint>

#include "gradwire/train/pipeline/hybrid_stages.h"

namespace gradwire {

/// Waits for all gradients, and returns the squared norm of those of the whole model: squares are
/// added in the order of the parameters, those of divided ones then over their ranks, so that the
/// bits depend on neither stages nor cut. `step`: for errors. Collective.
double squared_norm(const HybridStages& model, const Pipeline::Options& options, std::int64_t step);

}  // namespace gradwire

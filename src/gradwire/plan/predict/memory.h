#pragma once

#include <array>
#include <cstdint>

#include "gradwire/plan/model.h"
#include "gradwire/plan/strategy.h"

namespace gradwire::plan {

/// Bytes on one device, by use.
struct MemoryUse {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;    ///< States, and the fp32 copy of the parameters if separate.
  double activations = 0;  ///< Activations of a pass, kept for backward.
  double buffers = 0;      ///< Buckets, error-feedback residuals, gathered layers.
  bool activations_known = true;

  double states() const { return parameters + gradients + optimizer; }
  double total() const { return states() + activations + buffers; }
};

/// Bytes per parameter: [parameter, gradient, optimizer]. Mixed precision with Adam has 2, 2 and K
/// = 12 (Rajbhandari et al., "ZeRO", arXiv:1910.02054, section 3.1).
struct BytesPerParameter {
  double parameter = 4, gradient = 4, optimizer = 8;
};
BytesPerParameter bytes_per_parameter(ComputeType compute, OptimizerKind optimizer);

/// Returns the bytes of model states of `parameters` parameters on each of `ranks` devices, for
/// ZeRO stage 0 .. 3 (the same paper, figure 1): 2Psi + 2Psi + K Psi. Stage 1 divides K Psi by the
/// ranks, stage 2 also the gradients, stage 3 everything.
double zero_states(double parameters, const BytesPerParameter& bytes, int stage, int ranks);

/// Returns the memory use of the device with the maximum. `kept`: micro-batches whose activations a
/// pipeline's rank keeps.
MemoryUse memory_use(const ModelShape& model, const Strategy& strategy, double kept = 1);

}  // namespace gradwire::plan

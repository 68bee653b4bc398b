#pragma once

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/data/data_set.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/workload/layer_profile.h"

namespace gradwire::recipe {

/// Profiles a classifier's training step: its children, each with its parameters and the time of
/// its forward and backward on this machine. Times are medians over ten runs, each child by itself.
/// The loss counts as part of the last child. Clears the model's gradients.
workload::LayerProfile record_profile(torch::nn::Sequential& model, const Batch& batch,
                                      Precision precision, const Clock& clock);

/// Profiles a new model as configured, on the first images of its data. The batch is one rank's
/// part of the global batch; the precision is the configured one.
workload::LayerProfile record_profile(const TrainConfig& config, int ranks, const Clock& clock);

}  // namespace gradwire::recipe

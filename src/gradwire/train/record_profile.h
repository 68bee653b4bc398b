#pragma once

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/data/batch.h"
#include "gradwire/gradient/layer_profile.h"
#include "gradwire/train/train_config.h"

namespace gradwire {

/// What a classifier's step consists of: its children, each with its parameters and the time that
/// its forward and its backward take on this machine: medians over ten times, each child run by
/// itself. The loss counts as part of the last child. The model's gradients are cleared.
LayerProfile record_profile(torch::nn::Sequential& model, const Batch& batch, Precision precision,
                            const Clock& clock);

/// The same of a new model as a configuration names it, on the first images of its data: as many
/// as each of `ranks` takes of a batch, in its precision.
LayerProfile record_profile(const TrainConfig& config, int ranks, const Clock& clock);

}  // namespace gradwire

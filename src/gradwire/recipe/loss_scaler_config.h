#pragma once

#include "gradwire/recipe/json_object.h"
#include "gradwire/train/optim/loss_scaler.h"
#include "gradwire/train/optim/precision.h"

namespace gradwire {

/// Reads "fp16", the settings of loss scaling, with DeepSpeed's keys. `computing` is the value of
/// "precision": unless it is fp16, the object must be empty or disabled. Throws
/// Exception(invalid_argument) that names the key.
LossScalerOptions read_loss_scaling(JsonObject json, Precision computing);

}  // namespace gradwire

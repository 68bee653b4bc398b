#pragma once

#include "gradwire/train/json_object.h"
#include "gradwire/train/loss_scaler.h"
#include "gradwire/train/precision.h"

namespace gradwire {

/// Reads "fp16", how the loss is scaled, with DeepSpeed's keys. `computing` is what "precision"
/// says: unless it is fp16, the object must be empty or say that it is not enabled. Throws
/// Exception(invalid_argument) that names the key.
LossScalerOptions read_loss_scaling(JsonObject json, Precision computing);

}  // namespace gradwire

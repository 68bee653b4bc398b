#pragma once

#include <string>

#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Returns what a training run on `ranks` ranks would do: the mesh, each replica's batch, and for a
/// pipeline its stages and a drawing of its schedule, which is verified. Makes the model layer by
/// layer, and reads no data. Throws Exception(invalid_argument) as the run would.
std::string dry_run(const TrainConfig& config, int ranks);

}  // namespace gradwire::recipe

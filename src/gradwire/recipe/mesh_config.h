#pragma once

#include "gradwire/base/json_fields.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Reads "mesh", "pipeline", "tensor" and "spatial" of a configuration, whose model, data and
/// optimizer are read already. Throws Exception(invalid_argument) as parse_train_config().
void read_mesh(JsonFields& root, TrainConfig& config);

/// Throws Exception(invalid_argument) for settings that a model across ranks does not have.
/// `root`: the whole configuration.
void check_mesh(JsonFields& root, const TrainConfig& config);

}  // namespace gradwire::recipe

#pragma once

#include <string>

#include "gradwire/base/json_fields.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Reads "inside" of a configuration: "own", or "" if the key is absent. Throws
/// Exception(invalid_argument) as parse_train_config().
std::string read_inside(JsonFields& root);

/// Throws Exception(invalid_argument) for settings that a group in two levels does not have.
/// `root`: the whole configuration.
void check_inside(JsonFields& root, const TrainConfig& config);

}  // namespace gradwire::recipe

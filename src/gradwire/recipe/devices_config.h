#pragma once

#include <string>
#include <vector>

#include "gradwire/base/json_fields.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Reads "devices" of a configuration: the devices of each process, such as "cpu" or "cuda:1"; none
/// if the key is absent. Throws Exception(invalid_argument) as parse_train_config().
std::vector<std::string> read_devices(JsonFields& root);

/// Throws Exception(invalid_argument) for settings that replicas on threads of a process do not
/// have. `root`: the whole configuration.
void check_devices(JsonFields& root, const TrainConfig& config);

}  // namespace gradwire::recipe

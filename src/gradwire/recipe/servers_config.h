#pragma once

#include <string>

#include "gradwire/base/json_fields.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Reads "servers" of a configuration. Throws Exception(invalid_argument) as parse_train_config().
ServersConfig read_servers(JsonFields json);

/// Throws Exception(invalid_argument) for settings that parameter servers do not have.
void check_servers(const TrainConfig& config);

/// Throws Exception(invalid_argument) if `workers` cannot be in these groups.
void check_groups(const ServersConfig& config, int workers);

/// Returns the key whose value makes servers take norms over all of them: gradient_clipping, or
/// optimizer.name. Empty if there is none.
std::string norms_over_servers(const TrainConfig& config);

}  // namespace gradwire::recipe

#pragma once

#include <string>
#include <vector>

#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Returns a line for each setting with which asynchronous training usually fails. Empty without
/// servers, in mode sync, and with one worker.
std::vector<std::string> advice_on_servers(const TrainConfig& config, int ranks);

}  // namespace gradwire::recipe

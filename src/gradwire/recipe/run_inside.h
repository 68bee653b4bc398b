#pragma once

#include <string>

#include "gradwire/host/group.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// Returns `group`, in two levels if the configuration has "inside" (hybrid_group()). Collective.
ProcessGroup group_with_inside(const TrainConfig& config, const ProcessGroup& group);

/// A line for `--dry-run`; empty without "inside".
std::string inside_text(const TrainConfig& config);

}  // namespace gradwire::recipe

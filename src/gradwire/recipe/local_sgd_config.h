#pragma once

#include "gradwire/recipe/json_object.h"
#include "gradwire/step/local_steps.h"

namespace gradwire {

/// Reads the object "local_steps" of a configuration. Throws Exception(invalid_argument) that names
/// the key, or what check_local_steps() throws.
LocalStepsConfig read_local_steps(JsonObject json);

}  // namespace gradwire

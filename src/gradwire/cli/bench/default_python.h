#pragma once

#include <string>

#include "gradwire/bootstrap/job.h"

namespace gradwire {

/// Returns the default of --python: GRADWIRE_PYTHON of the environment; else .venv of the source
/// folder, if this program is in a build folder there; else python3.
std::string default_python(const Environment& environment);

}  // namespace gradwire

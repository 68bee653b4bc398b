#pragma once

#include <string>

#include "gradwire/comm/job.h"

namespace gradwire {

/// The Python with PyTorch that --python names by default: that of the environment's
/// GRADWIRE_PYTHON; else .venv of the source folder, if this program is in a build folder there;
/// else python3.
std::string usual_python(const Environment& environment);

}  // namespace gradwire

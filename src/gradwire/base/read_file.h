#pragma once

#include <filesystem>
#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// Returns the whole content of a file, or of a pipe until its end. Fails with system, with the
/// name and the reason, such as "cannot read runs/a: it is a folder".
Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace gradwire

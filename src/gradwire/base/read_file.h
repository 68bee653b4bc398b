#pragma once

#include <filesystem>
#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// The whole content of a file, or a pipe's until its end. Error: system, with the name and the
/// reason, such as "cannot read runs/a: it is a folder".
Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace gradwire

#pragma once

#include <string>

namespace gradwire {

/// Returns the secret in the file of --secret-file, without trailing white space. Throws
/// Exception(invalid_argument), naming option and file, if there is no file, if other users can
/// access it (base/private_file.h), or if it is longer than the maximum.
std::string read_secret_file(const std::string& path);

}  // namespace gradwire

#pragma once

#include <string>

namespace gradwire {

/// The secret in the file of --secret-file, without white space at its end. Throws
/// Exception(invalid_argument), naming option and file, if there is none, if the file is not this
/// user's alone (base/private_file.h), or if it holds more than any secret.
std::string read_secret_file(const std::string& path);

}  // namespace gradwire

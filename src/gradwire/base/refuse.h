#pragma once

#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// Throws Exception(invalid_argument): a request of the caller, a command line or a file is
/// invalid, and nothing was done. `message` as Error::message.
[[noreturn]] inline void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

}  // namespace gradwire

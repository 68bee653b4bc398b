#pragma once

#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// Throws Exception(invalid_argument): what a caller, a command line or a file says cannot be done,
/// and nothing was. `message` as Error::message.
[[noreturn]] inline void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

}  // namespace gradwire

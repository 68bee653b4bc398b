#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "gradwire/base/error.h"

namespace gradwire {

/// Returns the operating system's message for an errno value.
inline std::string errno_text(int error_number) {
  return std::generic_category().message(error_number);
}

/// Error of the system call that has just failed: "`what`: No such file or directory".
inline tl::unexpected<Error> system_failure(const std::string& what, int error_number = errno,
                                            ErrorKind kind = ErrorKind::system) {
  return failure(kind, what + ": " + errno_text(error_number));
}

}  // namespace gradwire

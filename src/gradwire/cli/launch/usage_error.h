#pragma once

#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// A command line that cannot be executed as given: the program exits with status 2.
class UsageError : public Exception {
 public:
  explicit UsageError(const std::string& message)
      : Exception(ErrorKind::invalid_argument, message) {}
};

/// Returns the result of `read`, which parses the command line or a file that it names. Rethrows
/// its Exception(invalid_argument) as UsageError.
template <class Read>
auto read_arguments(const Read& read) {
  try {
    return read();
  } catch (const Exception& e) {
    if (e.kind() != ErrorKind::invalid_argument) throw;
    throw UsageError(e.what());
  }
}

}  // namespace gradwire

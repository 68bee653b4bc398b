#pragma once

#include <string>

#include "gradwire/base/error.h"

namespace gradwire {

/// A command line that cannot be carried out as it is: the program ends with status 2.
class WrongCommandLine : public Exception {
 public:
  explicit WrongCommandLine(const std::string& message)
      : Exception(ErrorKind::invalid_argument, message) {}
};

/// The result of `read`, which makes values of what the command line, or a file that it names,
/// says. Its Exception(invalid_argument) becomes a WrongCommandLine.
template <class Read>
auto read_arguments(const Read& read) {
  try {
    return read();
  } catch (const Exception& e) {
    if (e.kind() != ErrorKind::invalid_argument) throw;
    throw WrongCommandLine(e.what());
  }
}

}  // namespace gradwire

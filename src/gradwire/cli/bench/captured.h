#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// A command that has ended.
struct Captured {
  int status = 0;  ///< 0 .. 255, or 128 + signal.
  std::string out, err;
};

/// Runs a command to its end, in this process's environment, and collects what it writes. It is
/// killed at `limit`, and with this process.
/// Errors: system, if it cannot be started; timeout.
Result<Captured> run_captured(const std::vector<std::string>& command, Duration limit);

}  // namespace gradwire

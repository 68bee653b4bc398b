#pragma once

#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::cli {

/// Result of a command that has ended.
struct Captured {
  int status = 0;  ///< 0 to 255, or 128 + signal.
  std::string out, err;
};

/// Runs a command to its end in this process's environment and captures its output. The command is
/// killed at `limit`, or when this process ends. Fails with system if it cannot be started, or with
/// timeout.
Result<Captured> run_captured(const std::vector<std::string>& command, Duration limit);

}  // namespace gradwire::cli

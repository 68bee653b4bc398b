#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/launch/launch.h"

namespace gradwire {

/// Starts `ranks` processes of the running executable on this host as the ranks of a job and waits
/// for them; for commands with an option -n. `arguments`: everything after the program's name; with
/// them the ranks must not start ranks themselves (they see WORLD_SIZE set). Rank 0 writes directly
/// to the terminal, so that progress lines and tables look as if it ran alone; lines of other ranks
/// are prefixed with "[rank] ". Otherwise as launch(), including the result. `name` begins the
/// launcher's own messages ("gradwire bench").
int run_self(const std::vector<std::string>& arguments, int ranks,
             const std::string& name = "gradwire");

/// As above, with placement and network from `options`; this executable must be at the same path on
/// every host. Overwrites the program and output of `options`.
int run_self(const std::vector<std::string>& arguments, LaunchOptions options);

}  // namespace gradwire

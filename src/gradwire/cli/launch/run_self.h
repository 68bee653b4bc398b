#pragma once

#include <string>
#include <vector>

#include "gradwire/cli/launch/launch.h"

namespace gradwire {

/// Starts `ranks` processes of the running executable on this host as the ranks of a job and waits
/// for them; for commands with an option -n. `arguments`: what follows the program's name, which
/// must no longer make it start ranks of its own (the ranks see WORLD_SIZE set). What rank 0 writes
/// goes straight to the terminal, so that progress lines and tables look as if it ran alone; what
/// others write has "[rank] " before each line. Everything else is as launch() has it, also what
/// it returns. `name` begins the launcher's own messages ("gradwire bench").
int run_self(const std::vector<std::string>& arguments, int ranks,
             const std::string& name = "gradwire");

/// The same wherever `options` say, which needs this executable at the same path on every host.
/// Their program and output are replaced.
int run_self(const std::vector<std::string>& arguments, LaunchOptions options);

}  // namespace gradwire

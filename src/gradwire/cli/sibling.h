#pragma once

#include <optional>
#include <string>

namespace gradwire::cli {

/// Returns the path of `gradwire-torch`: in the folder of this program or in ../libexec. nullopt:
/// not installed.
std::optional<std::string> find_torch_program();

/// Execs `gradwire-torch`, found as in find_torch_program(), with the same command line (argv[0] is
/// the command's name). It is a separate program for commands that need libtorch, so that all
/// others start fast and run without it. Throws Exception(unsupported) that says how to build it if
/// it does not exist, Exception(system) if exec fails.
[[noreturn]] void exec_torch_program(int argc, char** argv);

}  // namespace gradwire::cli

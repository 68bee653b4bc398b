#pragma once

#include <optional>
#include <string>

namespace gradwire {

/// Where `gradwire-torch` is: beside this program or in ../libexec. Nothing: it is not installed.
std::optional<std::string> find_torch_program();

/// Becomes `gradwire-torch` with the same command line (argv[0] is the command's name): the program
/// for what needs libtorch, a separate one so that the rest starts at once and runs without it. It
/// is looked for beside the running program and in ../libexec. Returns only if it is not there:
/// throws Exception(unsupported) that says how to build it.
[[noreturn]] void exec_torch_program(int argc, char** argv);

}  // namespace gradwire

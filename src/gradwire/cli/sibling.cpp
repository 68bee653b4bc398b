#include "gradwire/cli/sibling.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire {
namespace {

constexpr const char* kTorchProgram = "gradwire-torch";

std::string find_torch_program() {
  const std::filesystem::path here = std::filesystem::path(own_executable()).parent_path();
  for (const auto& folder : {here, here.parent_path() / "libexec"}) {
    const std::filesystem::path candidate = folder / kTorchProgram;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw Exception(ErrorKind::unsupported,
                  fmt::format("{} is not in {} nor in ../libexec from there; it is built with "
                              "-DGRADWIRE_TORCH=ON, for which PyTorch must be installed: `make "
                              "build` does both",
                              kTorchProgram, here.string()));
}

}  // namespace

void exec_torch_program(int argc, char** argv) {
  const std::string program = find_torch_program();
  std::vector<char*> arguments{const_cast<char*>(kTorchProgram)};
  arguments.insert(arguments.end(), argv, argv + argc);
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  throw Exception(ErrorKind::system,
                  fmt::format("cannot start {}: {}", program, std::strerror(errno)));
}

}  // namespace gradwire

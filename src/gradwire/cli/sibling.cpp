#include "gradwire/cli/sibling.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

constexpr const char* kTorchProgram = "gradwire-torch";

std::filesystem::path own_folder() {
  return std::filesystem::path(own_executable()).parent_path();
}

}  // namespace

std::optional<std::string> find_torch_program() {
  for (const auto& folder : {own_folder(), own_folder().parent_path() / "libexec"}) {
    const std::filesystem::path candidate = folder / kTorchProgram;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

void exec_torch_program(int argc, char** argv) {
  const auto program = find_torch_program();
  if (!program) {
    throw Exception(
        ErrorKind::unsupported,
        fmt::format("{} is not in {} or its ../libexec; it is built with -DGRADWIRE_TORCH=ON, "
                    "which requires PyTorch: `make build` does both",
                    kTorchProgram, own_folder().string()));
  }
  std::vector<char*> arguments{const_cast<char*>(kTorchProgram)};
  arguments.insert(arguments.end(), argv, argv + argc);
  arguments.push_back(nullptr);
  ::execv(program->c_str(), arguments.data());
  throw Exception(ErrorKind::system,
                  fmt::format("cannot start {}: {}", *program, std::strerror(errno)));
}

}  // namespace gradwire::cli

#include "gradwire/cli/sibling.h"

#include <cerrno>
#include <cstdlib>
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

/// Returns "2.13" for "2.13.0+cpu".
std::string minor_release(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

/// The Python package has the program for one release of PyTorch, with whose libtorch it runs.
void require_release(const char* installed) {
  constexpr const char* kBuiltFor = GRADWIRE_TORCH_RELEASE;
  if (installed == nullptr || minor_release(installed) == kBuiltFor) return;
  throw Exception(
      ErrorKind::unsupported,
      fmt::format("{} of this package was built for PyTorch {}, but PyTorch {} is installed: "
                  "install 'torch=={}.*', or build gradwire from its sources: pip install "
                  "--no-build-isolation .",
                  kTorchProgram, kBuiltFor, installed, kBuiltFor));
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
  require_release(std::getenv("GRADWIRE_TORCH_INSTALLED"));  // python/gradwire/program.py sets it.
  std::vector<char*> arguments{const_cast<char*>(kTorchProgram)};
  arguments.insert(arguments.end(), argv, argv + argc);
  arguments.push_back(nullptr);
  ::execv(program->c_str(), arguments.data());
  throw Exception(ErrorKind::system,
                  fmt::format("cannot start {}: {}", *program, std::strerror(errno)));
}

}  // namespace gradwire::cli

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include "gradwire/cli/commands.h"
#include "gradwire/cli/dispatch.h"

namespace gradwire::cli {
namespace {

constexpr std::array<Command, 4> kCommands{{
    {"train", "Trains a model described by a JSON file", train_command},
    {"generate", "Writes text with a model that gradwire train has trained", generate_command},
    {"federate", "Trains on clients that keep their data", torch_federate_command},
    {"bench", "Measures collective operations", torch_bench_command},
}};

/// Returns the version of the loaded libtorch: the parts of 2.13.0 are the highest bytes.
std::string version_of_libtorch() {
  const std::uint64_t version = aoti_torch_abi_version();
  return fmt::format("{}.{}.{}", version >> 56, version >> 48 & 0xff, version >> 40 & 0xff);
}

}  // namespace
}  // namespace gradwire::cli

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    fmt::print("gradwire {}, built with PyTorch {}, runs with PyTorch {}\n", GRADWIRE_VERSION,
               TORCH_VERSION, gradwire::cli::version_of_libtorch());
    return 0;
  }
  // Messages begin with the command that the user typed, `gradwire train`.
  return gradwire::cli::dispatch("gradwire", "The commands of gradwire that need libtorch",
                                 gradwire::cli::kCommands, argc, argv);
}

#include <array>

#include "gradwire/cli/commands.h"
#include "gradwire/cli/dispatch.h"

namespace gradwire {
namespace {

constexpr std::array<Command, 2> kCommands{{
    {"train", "Trains a model as a JSON file says", train_command},
    {"bench", "Measures collective operations", torch_bench_command},
}};

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  // Users write `gradwire train`, and messages should say the same.
  return gradwire::dispatch("gradwire", "The commands of gradwire that need libtorch",
                            gradwire::kCommands, argc, argv);
}

#include <array>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/dispatch.h"
#include "gradwire/cli/sibling.h"

namespace gradwire::cli {
namespace {

int torch_program(int argc, char** argv) {
  exec_torch_program(argc, argv);
}

/// Ranks under torchrun use torchrun's store for the rendezvous; its c10d protocol needs libtorch.
int bench_with_any_launcher(int argc, char** argv) {
  if (bootstrap::Job::from_environment().launcher_store) exec_torch_program(argc, argv);
  return bench_command(argc, argv);
}

constexpr auto kCommands = std::to_array<Command>({
    {"train", "Trains a model described by a JSON file", torch_program},
    {"generate", "Writes text with a model that gradwire train has trained", torch_program},
    {"run", "Starts any program as the ranks of a job, on one or several hosts", run_command},
    {"bench", "Measures collective operations", bench_with_any_launcher},
    {"report", "Renders training runs as one self-contained HTML page", report_command},
    {"plan", "Predicts training time, memory, bottleneck, and what to change", plan_command},
    {"schedule", "Draws, verifies and simulates collective algorithms", schedule_command},
    {"probe", "Measures the links between hosts, for the tuner and the simulator", probe_command},
    {"tune", "Measures the fastest algorithm for each size on these hosts", tune_command},
    {"doctor", "Checks hosts and network for common problems before a job runs", doctor_command},
    {"checkpoint", "Lists checkpoints, and merges one into a single file", checkpoint_command},
    {"federate", "Federated learning: trains on devices whose data stay there", federate_command},
    {"env", "Prints the rank and job of a process started here", env_command},
});

}  // namespace
}  // namespace gradwire::cli

int main(int argc, char** argv) {
  return gradwire::cli::dispatch("gradwire",
                                 "Distributed training of neural networks on plain Ethernet",
                                 gradwire::cli::kCommands, argc, argv);
}

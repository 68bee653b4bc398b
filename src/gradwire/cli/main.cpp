#include <array>

#include "gradwire/cli/commands.h"
#include "gradwire/cli/dispatch.h"
#include "gradwire/cli/sibling.h"
#include "gradwire/comm/job.h"

namespace gradwire {
namespace {

int torch_program(int argc, char** argv) {
  exec_torch_program(argc, argv);
}

/// torchrun's own store, over which the ranks must then find each other, speaks c10d's protocol.
int bench_with_any_launcher(int argc, char** argv) {
  if (Job::from_environment().launcher_store) exec_torch_program(argc, argv);
  return bench_command(argc, argv);
}

constexpr auto kCommands = std::to_array<Command>({
    {"train", "Trains a model as a JSON file says", torch_program},
    {"run", "Starts any program as the ranks of a job, on one or several hosts", run_command},
    {"bench", "Measures collective operations", bench_with_any_launcher},
    {"report", "Shows training runs as one HTML page, which needs no network", report_command},
    {"plan", "Says whether it will scale: time, memory, bottleneck, what to change", plan_command},
    {"schedule", "Draws, verifies and simulates collective algorithms", schedule_command},
    {"probe", "Measures what joins the hosts, for the tuner and the simulator", probe_command},
    {"tune", "Measures which algorithm is the fastest for each size here", tune_command},
    {"doctor", "Checks everything that usually goes wrong before a job does", doctor_command},
    {"checkpoint", "Lists checkpoints, and makes one file out of many", checkpoint_command},
    {"env", "Prints the rank and the job that a process would have here", env_command},
});

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  return gradwire::dispatch("gradwire", "Distributed training of neural networks on plain Ethernet",
                            gradwire::kCommands, argc, argv);
}

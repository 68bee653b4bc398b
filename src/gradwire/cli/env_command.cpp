#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/comm/job.h"

namespace gradwire {
namespace {

const char* secret_of(const Job& job) {
  if (!job.secret.empty()) return "set";
  return job.launcher_store ? "from the launcher's store" : "none";
}

void print(const Job& job) {
  fmt::print(
      "launcher={} rank={} world_size={} local_rank={} local_world_size={} master={}:{} "
      "interface={} secret={}\n",
      job.launcher, job.rank, job.world_size, job.local_rank, job.local_world_size,
      job.master_address, job.master_port, job.interface.empty() ? "(route)" : job.interface,
      secret_of(job));
}

}  // namespace

int env_command(int argc, char** argv) {
  CLI::App app{
      "Prints, in one line, which rank of which job a process started here would be, and whether "
      "it has a secret (never the secret itself). Start it as you would start a training: "
      "\"srun gradwire env\"."};
  app.name("gradwire env");
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  print(Job::from_environment());
  return 0;
}

}  // namespace gradwire

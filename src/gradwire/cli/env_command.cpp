#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/mesh/local_rails.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"

namespace gradwire::cli {
namespace {

const char* secret_of(const bootstrap::Job& job) {
  if (!job.secret.empty()) return "set";
  return job.launcher_store ? "from the launcher's store" : "none";
}

/// Returns the rails that this rank would use, such as "gw0:10.77.0.1,gw1:10.77.1.1".
std::string rails_of(const bootstrap::Job& job) {
  const auto masters = net::resolve(job.master_address, job.master_port);
  if (!masters) return fmt::format("none ({})", masters.error().message);
  const auto rails = bootstrap::choose_local_rails(job.interface, masters->front());
  if (!rails) return fmt::format("none ({})", rails.error().message);
  std::vector<std::string> words;
  for (const bootstrap::RailEndpoint& rail : *rails) {
    words.push_back(fmt::format("{}:{}", rail.interface, rail.address.host()));
  }
  return fmt::format("{}", fmt::join(words, ","));
}

std::string port_of(const bootstrap::Job& job) {
  return job.port == 0 ? "free" : std::to_string(job.port);
}

void print(const bootstrap::Job& job) {
  fmt::print(
      "launcher={} rank={} world_size={} local_rank={} local_world_size={} master={}:{} "
      "port={} interface={} secret={} rails={}\n",
      job.launcher, job.rank, job.world_size, job.local_rank, job.local_world_size,
      job.master_address, job.master_port, port_of(job),
      job.interface.empty() ? "(route)" : job.interface, secret_of(job), rails_of(job));
}

}  // namespace

int env_command(int argc, char** argv) {
  CLI::App app{
      "Prints, in one line, the rank and job of a process started here, whether it has a secret "
      "(never the secret itself), and its network interfaces. Start it like a training job: \"srun "
      "gradwire env\"."};
  app.name("gradwire env");
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  print(bootstrap::Job::from_environment());
  return 0;
}

}  // namespace gradwire::cli

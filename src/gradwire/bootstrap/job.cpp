#include "gradwire/bootstrap/job.h"

#include <cstdlib>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/environment_variables.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/launchers.h"

namespace gradwire::bootstrap {
namespace {

[[noreturn]] void throw_missing(const LauncherInfo& launched, std::string_view name,
                                std::string_view what) {
  const std::string how = fmt::format(fmt::runtime(launched.how_to_set), name);
  refuse("{} is not set, and {} does not say {}: set {}", name,
         launched.launcher == "gradwire" ? "RANK" : launched.launcher, what, how);
}

bool all_local(const LauncherInfo& launched) {
  return launched.local_world_size == launched.world_size;
}

std::string master_address(const EnvironmentVariables& variables, const LauncherInfo& launched) {
  if (const auto given = variables.text("MASTER_ADDR")) return *given;
  const bool by_hand = launched.launcher == "gradwire" || launched.launcher == "torchrun";
  if (all_local(launched) && !by_hand) return "127.0.0.1";
  if (launched.master_address.empty()) {
    throw_missing(launched, "MASTER_ADDR", "which host rank 0 is on");
  }
  return launched.master_address;
}

std::uint16_t master_port(const EnvironmentVariables& variables, const LauncherInfo& launched) {
  if (const auto given = variables.number("MASTER_PORT", 1, 65535)) {
    return static_cast<std::uint16_t>(*given);
  }
  if (const auto shared = variables.number("GRADWIRE_PORT", 1, 65535)) {
    return static_cast<std::uint16_t>(*shared);
  }
  if (launched.job_id.empty()) {
    throw_missing(launched, "MASTER_PORT", "on which port rank 0 listens");
  }
  return port_from_job_id(launched.job_id);
}

std::optional<std::string> given_secret(const Environment& environment) {
  const std::optional<std::string> secret = environment("GRADWIRE_SECRET");
  if (secret && secret->empty()) {
    refuse(
        "GRADWIRE_SECRET=\"\" in the environment: expected a secret, the same on all "
        "ranks, such as what `openssl rand -hex 32` prints; or unset it");
  }
  return secret;
}

/// Across hosts there is no file that all ranks could share, so the user must provide a secret.
std::string shared_secret(const Environment& environment, const Job& job) {
  if (job.world_size == 1 || job.launcher_store || job.engine == "mpi") return {};
  if (is_loopback(job.master_address) && job.local_world_size == job.world_size) {
    return user_key(environment);
  }
  refuse(
      "GRADWIRE_SECRET is not set, and the ranks of this job (master {}) may "
      "be on several hosts, which must prove to each other that they belong "
      "together: set GRADWIRE_SECRET=$(openssl rand -hex 32), once, for all "
      "ranks",
      job.master_address);
}

Job describe(const EnvironmentVariables& variables, const LauncherInfo& launched) {
  Job job;
  job.rank = launched.rank;
  job.world_size = launched.world_size;
  job.local_rank = launched.local_rank;
  job.local_world_size = launched.local_world_size;
  job.launcher_store = launched.launcher_store;
  job.launcher = launched.launcher;
  job.job_id = variables.text("GRADWIRE_JOB_ID").value_or(launched.job_id);
  job.engine = variables.text("GRADWIRE_ENGINE").value_or("own");
  const bool needs_master = job.engine != "mpi" || variables.has("MASTER_PORT");
  if (job.world_size > 1 && needs_master) {
    job.master_address = master_address(variables, launched);
    job.master_port = master_port(variables, launched);
  }
  return job;
}

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

Job Job::from_environment(const Environment& environment) {
  const EnvironmentVariables variables(environment);
  const std::optional<LauncherInfo> launched = find_launcher(variables);
  Job job = launched ? describe(variables, *launched) : Job{};
  job.port = static_cast<std::uint16_t>(variables.number("GRADWIRE_PORT", 1, 65535).value_or(0));
  job.shared_memory = variables.number("GRADWIRE_SHARED_MEMORY", 0, 1).value_or(1) == 1;
  job.encryption = variables.on_or_off("GRADWIRE_ENCRYPTION").value_or(false);
  job.interface = variables.text("GRADWIRE_INTERFACE").value_or("");
  const std::optional<std::string> secret = given_secret(environment);
  job.secret = secret ? *secret : shared_secret(environment, job);
  return job;
}

}  // namespace gradwire::bootstrap

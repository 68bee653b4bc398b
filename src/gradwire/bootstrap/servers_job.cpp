#include "gradwire/bootstrap/servers_job.h"

#include <charconv>

#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/environment_variables.h"

namespace gradwire::bootstrap {
namespace {

constexpr const char* kRemedy = "start the job with gradwire run --servers, which sets it";

bool read_role(const EnvironmentVariables& variables) {
  const std::string role = variables.text(kRoleVariable).value_or("");
  if (role != "worker" && role != "server") {
    refuse("{}=\"{}\" in the environment: expected worker or server; {}", kRoleVariable, role,
           kRemedy);
  }
  return role == "server";
}

void set_master(Job& job, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  const char* const end = text.data() + text.size();
  const bool has_port =
      colon != std::string::npos && std::from_chars(text.data() + colon + 1, end, port).ptr == end;
  if (!has_port || colon == 0 || port < 1 || port > 65535) {
    refuse("{}=\"{}\" in the environment: expected ADDRESS:PORT; {}", kServersMasterVariable, text,
           kRemedy);
  }
  job.master_address = text.substr(0, colon);
  job.master_port = static_cast<std::uint16_t>(port);
}

}  // namespace

std::optional<ServersJob> servers_job(const Job& own, const Environment& environment) {
  const EnvironmentVariables variables(environment);
  if (!variables.has(kServersVariable)) return std::nullopt;
  ServersJob job{
      .workers = variables.required_number(kWorkersVariable, 1, kMaxRanks - 1, {}, kRemedy),
      .servers = variables.required_number(kServersVariable, 1, kMaxRanks - 1, {}, kRemedy),
      .serves = read_role(variables),
      .all = own};
  const int expected = job.serves ? job.servers : job.workers;
  if (own.world_size != expected) {
    refuse("WORLD_SIZE is {}, and {} {}; {}", own.world_size,
           job.serves ? kServersVariable : kWorkersVariable, expected, kRemedy);
  }
  set_master(job.all, variables.text(kServersMasterVariable).value_or(""));
  job.all.world_size = job.workers + job.servers;
  if (job.serves) job.all.rank += job.workers;
  // Both parts have the launcher's secret; a part of one rank needs none of its own.
  job.all.secret = environment("GRADWIRE_SECRET").value_or("");
  job.all.job_id += "/servers";
  job.all.launcher_store = false;
  return job;
}

}  // namespace gradwire::bootstrap

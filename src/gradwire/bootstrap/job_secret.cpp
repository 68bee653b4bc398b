#include "gradwire/bootstrap/job_secret.h"

#include <algorithm>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "gradwire/bootstrap/launchers.h"

namespace gradwire {

Status check_secret(const std::string& secret, const SocketAddress& address,
                    const std::string& source) {
  if (secret.empty() || secret.size() >= kMinSecretBytes || address.is_loopback()) return {};
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("{} has {} characters; ranks that connect over a network ({}) need {} or more, "
                  "as a short secret can be guessed: leave it out under gradwire run, which makes "
                  "one, or set GRADWIRE_SECRET=$(openssl rand -hex 16), once, for all ranks",
                  source, secret.size(), address.host(), kMinSecretBytes));
}

Status check_secret_at(const std::string& secret, const std::string& host,
                       const std::string& source) {
  if (secret.empty() || secret.size() >= kMinSecretBytes) return {};
  const auto addresses = resolve(host, 0);
  if (!addresses) return {};
  for (const SocketAddress& address : *addresses) {
    if (Status strong = check_secret(secret, address, source); !strong) return strong;
  }
  return {};
}

std::string open_store_warning(const Job& job) {
  const bool concerned = job.world_size > 1 && job.launcher_store && job.secret.empty();
  if (!concerned || is_loopback(job.master_address)) return {};
  return fmt::format(
      "any process that reaches the c10d store at {}:{} can read the secret that protects this "
      "job's connections, and join it: set GRADWIRE_SECRET=$(openssl rand -hex 16), once, for all "
      "ranks, or start them with gradwire run",
      job.master_address, job.master_port);
}

void warn_of_open_store(const Job& job) {
  const std::string warning = open_store_warning(job);
  if (job.rank == 0 && !warning.empty()) spdlog::warn("{}", warning);
}

}  // namespace gradwire

#include "gradwire/torch/group_options.h"

#include <algorithm>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/environment_variables.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/mesh/local_rails.h"
#include "gradwire/torch/gradwire_store.h"
#include "gradwire/torch/store.h"

namespace gradwire {
namespace {

/// Returns the store behind all prefixes if it is a `Kind`, else null. Lives as long as `store`.
template <class Kind>
const Kind* behind(c10d::Store& store) {
  auto* prefixed = dynamic_cast<c10d::PrefixStore*>(&store);
  if (prefixed == nullptr) return dynamic_cast<const Kind*>(&store);
  return dynamic_cast<const Kind*>(prefixed->getUnderlyingNonPrefixStore().get());
}

/// Returns the store's host; empty if it has no address.
std::string host_of(c10d::Store& store) {
  if (const auto* ours = behind<GradwireStore>(store)) return ours->host();
  const auto* server = behind<c10d::TCPStore>(store);
  return server ? server->getHost() : std::string();
}

std::string master_address(c10d::Store& store, const bootstrap::EnvironmentVariables& variables) {
  const std::string host = host_of(store);
  return host.empty() ? variables.text("MASTER_ADDR").value_or("127.0.0.1") : host;
}

/// Returns true if the launcher has started ranks on other hosts.
bool spans_hosts(const bootstrap::EnvironmentVariables& variables) {
  const auto here = variables.number("LOCAL_WORLD_SIZE", 1, kMaxRanks);
  const auto all = variables.number("WORLD_SIZE", 1, kMaxRanks);
  return here && all && *here < *all;
}

}  // namespace

bootstrap::Job job_of_group(c10d::Store& store, Rank rank, int size, const GroupOptions& options,
                            const bootstrap::Environment& environment) {
  const bootstrap::EnvironmentVariables variables(environment);
  bootstrap::Job job;
  job.rank = rank;
  job.world_size = size;
  job.launcher = "torch.distributed";
  job.launcher_store = true;
  if (size > 1) job.master_address = master_address(store, variables);
  const int port =
      options.port ? *options.port : variables.number("GRADWIRE_PORT", 1, 65535).value_or(0);
  if (port < 0 || port > 65535) {
    refuse("option 'port' is {}; it must be 1 to 65535, or 0 for any", port);
  }
  job.port = static_cast<std::uint16_t>(port);
  job.engine = variables.text("GRADWIRE_ENGINE").value_or("own");
  job.shared_memory = options.shared_memory.value_or(
      variables.number("GRADWIRE_SHARED_MEMORY", 0, 1).value_or(1) == 1);
  job.encryption =
      options.encryption.value_or(variables.on_or_off("GRADWIRE_ENCRYPTION").value_or(false));
  job.interface = options.interface.value_or(variables.text("GRADWIRE_INTERFACE").value_or(""));
  job.secret = options.secret.value_or(variables.text("GRADWIRE_SECRET").value_or(""));
  if (job.interface.empty() && spans_hosts(variables)) {
    const auto address = bootstrap::address_in_place_of_loopback(job.master_address);
    if (!address.empty()) job.addresses = {address};
  }
  return job;
}

void warn_of_open_store(c10d::Store& store, Rank rank, int size, const GroupOptions& options) {
  const auto* server = behind<c10d::TCPStore>(store);
  if (server == nullptr) return;
  bootstrap::Job job = job_of_group(store, rank, size, options);
  job.master_port = server->getPort();
  bootstrap::warn_of_open_store(job);
}

std::shared_ptr<Communicator> connect_group(const c10::intrusive_ptr<c10d::Store>& store, Rank rank,
                                            int size, const GroupOptions& options) {
  const bootstrap::Job job = job_of_group(*store, rank, size, options);
  CommunicatorOptions communicator = options.communicator;
  communicator.operation_timeout = options.timeout;
  // A short operation timeout must not shorten rendezvous: processes start at different times.
  communicator.rendezvous_timeout =
      std::max<Duration>(options.timeout, communicator.rendezvous_timeout);
  if (!options.group_name.empty()) communicator.scope = options.group_name;
  return Communicator::connect(job, communicator, std::make_shared<C10dStore>(store));
}

}  // namespace gradwire

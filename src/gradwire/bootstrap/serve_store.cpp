#include "gradwire/bootstrap/serve_store.h"

#include <utility>

#include <fmt/format.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/mesh/shared_port.h"
#include "gradwire/bootstrap/store/store_protocol.h"
#include "gradwire/net/address.h"

namespace gradwire::bootstrap {
namespace {

bool is_shared(const Job& job) {
  return job.port != 0 && job.port == job.master_port;
}

/// Rank 0's name must resolve to an address that other hosts can reach. On some systems, /etc/hosts
/// maps the host's own name to 127.0.1.1.
void warn_of_hidden_loopback(const Job& job, const net::SocketAddress& address) {
  if (!address.is_loopback() || job.local_world_size == job.world_size) return;
  if (job.master_address == "localhost" || net::SocketAddress::of(job.master_address, 0)) return;
  log_warning(
      "{} resolves to {} on its own host, which no other host can reach: set rank 0's address "
      "as MASTER_ADDR",
      job.master_address, address.host());
}

Result<std::unique_ptr<Listener>> open_listener(const net::HostNetwork& network, const Job& job,
                                                const net::SocketAddress& address,
                                                net::Deadline deadline) {
  if (!is_shared(job)) {
    GRADWIRE_ASSIGN_OR_RETURN(auto socket, network.listen_on(address));
    return std::make_unique<SocketListener>(std::move(socket));
  }
  const PortMember member = {.destination = {service_number(kStorePurpose), 0},
                             .addresses = {address}};
  GRADWIRE_ASSIGN_OR_RETURN(
      auto listener,
      SharedPortListener::open(network, shared_port_name(job.secret, job.port), member, deadline));
  return listener;
}

}  // namespace

Result<std::unique_ptr<StoreServer>> serve_store(const net::HostNetwork& network, const Job& job,
                                                 std::optional<std::string> starts_job,
                                                 net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto addresses,
                            net::resolve(job.master_address, job.master_port));
  Error last;
  for (const net::SocketAddress& address : addresses) {
    auto listener = open_listener(network, job, address, deadline);
    if (listener) {
      warn_of_hidden_loopback(job, address);
      return StoreServer::start(
          network, std::move(*listener),
          {.credentials = one_secret({.secret = job.secret, .purpose = kStorePurpose}),
           .world_size = job.world_size,
           .starts_job = std::move(starts_job)});
    }
    last = listener.error();
  }
  return failure(last.kind, fmt::format("rank 0 {} (it listens at MASTER_ADDR:{})", last.message,
                                        is_shared(job) ? "GRADWIRE_PORT" : "MASTER_PORT"));
}

}  // namespace gradwire::bootstrap

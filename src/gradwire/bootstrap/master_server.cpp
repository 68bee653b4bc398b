#include "gradwire/bootstrap/master_server.h"

#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "gradwire/bootstrap/shared_port.h"
#include "gradwire/net/address.h"

namespace gradwire {
namespace {

bool is_shared(const Job& job) {
  return job.port != 0 && job.port == job.master_port;
}

/// Rank 0's name must resolve to an address that other hosts can reach. On some systems, /etc/hosts
/// maps the host's own name to 127.0.1.1.
void warn_of_hidden_loopback(const Job& job, const SocketAddress& address) {
  if (!address.is_loopback() || job.local_world_size == job.world_size) return;
  if (job.master_address == "localhost" || SocketAddress::of(job.master_address, 0)) return;
  spdlog::warn(
      "{} resolves to {} on its own host, which no other host can reach: set rank 0's address "
      "as MASTER_ADDR",
      job.master_address, address.host());
}

Result<std::unique_ptr<Listener>> open_listener(const HostNetwork& network, const Job& job,
                                                const char* purpose, const SocketAddress& address,
                                                Deadline deadline) {
  if (!is_shared(job)) {
    auto socket = network.listen_on(address);
    if (!socket) return tl::unexpected<Error>(socket.error());
    return std::make_unique<SocketListener>(std::move(*socket));
  }
  const PortMember member = {.destination = {service_number(purpose), 0}, .addresses = {address}};
  auto listener =
      SharedPortListener::open(network, shared_port_name(job.secret, job.port), member, deadline);
  if (!listener) return tl::unexpected<Error>(listener.error());
  return std::move(*listener);
}

}  // namespace

Result<std::unique_ptr<Listener>> open_master_listener(const HostNetwork& network, const Job& job,
                                                       const char* purpose, Deadline deadline) {
  const auto addresses = resolve(job.master_address, job.master_port);
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  Error last;
  for (const SocketAddress& address : *addresses) {
    auto listener = open_listener(network, job, purpose, address, deadline);
    if (listener) warn_of_hidden_loopback(job, address);
    if (listener) return listener;
    last = listener.error();
  }
  return failure(last.kind, fmt::format("rank 0 {} (it listens at MASTER_ADDR:{})", last.message,
                                        is_shared(job) ? "GRADWIRE_PORT" : "MASTER_PORT"));
}

Result<std::unique_ptr<RendezvousServer>> serve_at_master(const HostNetwork& network,
                                                          const Job& job, Deadline deadline) {
  auto listener = open_master_listener(network, job, kStorePurpose, deadline);
  if (!listener) return tl::unexpected<Error>(listener.error());
  return RendezvousServer::start(
      network, std::move(*listener),
      {.secret = job.secret, .world_size = job.world_size, .job_id = job.job_id});
}

}  // namespace gradwire

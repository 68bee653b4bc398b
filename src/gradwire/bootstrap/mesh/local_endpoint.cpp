#include "gradwire/bootstrap/mesh/local_endpoint.h"

#include <utility>

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/mesh/local_rails.h"
#include "gradwire/bootstrap/mesh/shared_port.h"
#include "gradwire/net/address.h"
#include "gradwire/topology/machine.h"

namespace gradwire::bootstrap {
namespace {

/// Opens the listeners for the other ranks and writes their addresses into `rails`.
Result<Listeners> open_listeners(const net::HostNetwork& network, const Job& job,
                                 const SharedSecret& shared, std::vector<RailEndpoint>& rails,
                                 net::Deadline deadline) {
  Listeners listeners;
  if (job.port == 0) {
    for (RailEndpoint& rail : rails) {
      GRADWIRE_ASSIGN_OR_RETURN(auto socket, network.listen_on(rail.address));
      rail.address = net::local_address(socket);
      listeners.push_back(std::make_unique<SocketListener>(std::move(socket)));
    }
    return listeners;
  }
  PortMember member = {.destination = {service_number(shared.purpose), job.rank}, .addresses = {}};
  for (RailEndpoint& rail : rails) {
    rail.address = rail.address.with_port(job.port);
    member.addresses.push_back(rail.address);
  }
  GRADWIRE_ASSIGN_OR_RETURN(
      auto listener, SharedPortListener::open(network, shared_port_name(shared.secret, job.port),
                                              member, deadline));
  listeners.push_back(std::move(listener));
  return listeners;
}

}  // namespace

Result<LocalEndpoint> open_local_endpoint(const net::HostNetwork& network, const Job& job,
                                          SharedSecret shared, const net::SocketAddress& master,
                                          net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(auto rails, job.addresses.empty()
                                            ? choose_local_rails(job.interface, master)
                                            : rails_at(job.addresses));
  for (const RailEndpoint& rail : rails) {
    GRADWIRE_RETURN_IF_ERROR(check_secret(shared.secret, rail.address));
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto listeners, open_listeners(network, job, shared, rails, deadline));
  RankEndpoint endpoint{.host = net::host_name(),
                        .machine = job.machine.empty() ? topology::machine_identity() : job.machine,
                        .cores = topology::machine_cores(),
                        .shares_memory = job.shared_memory,
                        .encrypts = job.encryption,
                        .rails = std::move(rails)};
  return LocalEndpoint{std::move(shared), std::move(endpoint), std::move(listeners)};
}

}  // namespace gradwire::bootstrap

#include "gradwire/cli/doctor/reachability_server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random_hex.h"
#include "gradwire/bootstrap/shared_port.h"
#include "gradwire/cli/doctor/host_info.h"
#include "gradwire/net/datagram.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire {
namespace {

/// The other doctors of this host hand over the port at once.
constexpr Duration kSharedPortTimeout = std::chrono::seconds(10);

RailInfo rail_info(const RailEndpoint& rail) {
  return {.interface = rail.interface,
          .address = rail.address.host(),
          .endpoint = {},
          .echo = {},
          .mtu = interface_mtu(rail.interface).value_or(0),
          .megabits = negotiated_megabits(rail.interface),
          .loopback = rail.address.is_loopback()};
}

/// Returns true if the master's port is one of the rails' endpoints, which the doctors try anyway.
bool is_at_rails(const Job& job, const SocketAddress& master,
                 const std::vector<RailEndpoint>& rails) {
  return job.port == job.master_port && std::ranges::any_of(rails, [&](const RailEndpoint& rail) {
           return rail.address.host() == master.host();
         });
}

bool is_of_this_host(const SocketAddress& address) {
  const auto interfaces = list_interfaces().value_or(std::vector<Interface>{});
  return address.is_loopback() || std::ranges::any_of(interfaces, [&](const Interface& one) {
           return std::ranges::find(one.addresses, address.host()) != one.addresses.end();
         });
}

/// If the first host's name is wrong on that host itself, diagnose_names() reports it.
bool is_own_name(const std::string& name, const HostInfo& info) {
  return !info.names.empty() && info.names.front().name == name;
}

}  // namespace

ReachabilityServer::ReachabilityServer(const HostNetwork& network, const Job& job,
                                       const std::vector<RailEndpoint>& rails, MasterPort port,
                                       HostInfo& info)
    : network_(network) {
  for (const RailEndpoint& rail : rails) info.rails.push_back(rail_info(rail));
  if (job.port == 0) {
    listen_at_free_ports(rails, info);
  } else if (!rails.empty()) {
    share_port(job, rails, info);
  }
  if (port == MasterPort::examined && job.rank == 0) listen_as_rank_0(job, rails, info);
  if (job.port == 0 || job.local_rank == 0) bind_datagram_sockets(job, rails, info);
  info.token = random_hex(8);
  echo_ = std::make_unique<EchoServer>(std::move(datagram_sockets_), echo_token(info.token));
  const auto admit = [me = job.rank](const Claims& claims) {
    return claims.to == me ? Verdict::accepted : Verdict::impossible;
  };
  handshakes_ = std::make_unique<HandshakeServer>(
      network.clock(), std::move(listeners_),
      HandshakeServer::Options{.shared = {.secret = job.secret, .purpose = kDoctorPurpose},
                               .world_size = job.world_size,
                               .expected = static_cast<std::size_t>(job.world_size) * rails.size()},
      admit, [](const AuthenticatedConnection&) {});
  auto thread = LoopThread::start(network, "cannot answer the other hosts",
                                  [this](const Socket& stop) { run(stop); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    info.problems.push_back(thread.error().message);
  }
}

void ReachabilityServer::listen_at_free_ports(const std::vector<RailEndpoint>& rails,
                                              HostInfo& info) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto socket = network_.listen_on(rails[i].address.with_port(0));
    if (!socket) {
      info.problems.push_back(socket.error().message);
      continue;
    }
    info.rails[i].endpoint = local_address(*socket).to_string();
    listeners_.push_back(std::make_unique<SocketListener>(std::move(*socket)));
  }
}

void ReachabilityServer::share_port(const Job& job, const std::vector<RailEndpoint>& rails,
                                    HostInfo& info) {
  PortMember member{.destination = {service_number(kDoctorPurpose), job.rank}, .addresses = {}};
  for (const RailEndpoint& rail : rails)
    member.addresses.push_back(rail.address.with_port(job.port));
  auto listener = SharedPortListener::open(network_, shared_port_name(job.secret, job.port), member,
                                           Deadline::after(network_.clock(), kSharedPortTimeout));
  if (!listener) {
    info.port_problems.push_back(listener.error().message);
    return;
  }
  for (std::size_t i = 0; i < rails.size(); ++i) {
    info.rails[i].endpoint = member.addresses[i].to_string();
  }
  listeners_.push_back(std::move(*listener));
}

/// Listens at the first of the master's addresses that belongs to this host.
void ReachabilityServer::listen_as_rank_0(const Job& job, const std::vector<RailEndpoint>& rails,
                                          HostInfo& info) {
  const auto addresses = resolve(job.master_address, job.master_port);
  if (!addresses) return;  // find_rails() reports that.
  const auto own = std::ranges::find_if(*addresses, is_of_this_host);
  if (own == addresses->end()) {
    if (is_own_name(job.master_address, info)) return;
    info.master_problem = fmt::format("{} is not an address of this host", job.master_address);
    return;
  }
  if (is_at_rails(job, *own, rails)) return;
  auto socket = network_.listen_on(*own);
  if (!socket) {
    info.master_problem = socket.error().message;
    return;
  }
  // A loopback address is reported by diagnose_names() and diagnose_interfaces().
  if (!own->is_loopback()) info.master = own->to_string();
  listeners_.push_back(std::make_unique<SocketListener>(std::move(*socket)));
}

void ReachabilityServer::bind_datagram_sockets(const Job& job,
                                               const std::vector<RailEndpoint>& rails,
                                               HostInfo& info) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto socket = bind_datagrams(rails[i].address.with_port(job.port));
    // Jobs need no datagrams, so that a UDP port in use is not a problem: take a free one.
    if (!socket && job.port != 0) socket = bind_datagrams(rails[i].address.with_port(0));
    if (!socket) {
      info.problems.push_back(socket.error().message);
      continue;
    }
    info.rails[i].echo = local_address(*socket).to_string();
    datagram_sockets_.push_back(std::move(*socket));
  }
}

void ReachabilityServer::run(const Socket& stop_end) {
  PollSet set;
  for (;;) {
    set.clear();
    const std::size_t stop = set.add(stop_end, POLLIN);
    set.wait(handshakes_->watch(set, Deadline::after(network_.clock(), std::chrono::hours(1))));
    if (set.returned_events(stop) != 0 || !handshakes_->advance(set)) return;
  }
}

}  // namespace gradwire

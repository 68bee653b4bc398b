#include "gradwire/cli/doctor/reach.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/bootstrap/mesh/shared_port.h"
#include "gradwire/cli/probe/measure.h"
#include "gradwire/net/datagram.h"
#include "gradwire/net/poll_set.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire::cli {
namespace {

using Outcome = Reachability::Outcome;

/// One attempt to reach an endpoint by TCP.
struct Call {
  Reachability result;
  std::unique_ptr<bootstrap::ClientHandshake> handshake;
  std::size_t place = 0;
};

bool mentions(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

void conclude(Call& call, const Error& error) {
  const bool connected = call.handshake && call.handshake->connected();
  call.result.error = error.message;
  if (connected && error.kind != ErrorKind::disconnected) {
    call.result.outcome = Outcome::unauthenticated;
  } else if (mentions(error.message, "unreachable") || mentions(error.message, "route")) {
    call.result.outcome = Outcome::no_route;
  } else {
    call.result.outcome = Outcome::refused;
  }
  call.handshake.reset();
}

/// `socket` is connecting to `to`.
Call begin(const bootstrap::Job& job, Result<net::Socket> socket, const net::SocketAddress& to,
           Reachability result) {
  Call call{.result = std::move(result), .handshake = nullptr};
  if (!socket) {
    conclude(call, socket.error());
    return call;
  }
  call.handshake = std::make_unique<bootstrap::ClientHandshake>(
      std::move(*socket), to.to_string(),
      bootstrap::SharedSecret{.secret = job.secret, .purpose = kDoctorPurpose},
      bootstrap::Claims{.from = job.rank, .to = call.result.to, .world_size = job.world_size});
  return call;
}

Call begin_over(const net::HostNetwork& network, const bootstrap::Job& job,
                const bootstrap::RailEndpoint& from, const net::SocketAddress& to,
                Reachability result) {
  result.detour = is_detour(from, to);
  const bool same_family = from.address.family() == to.family();
  return begin(
      job,
      network.start_connect(to, same_family ? from.address.with_port(0) : net::SocketAddress(),
                            binding_of(from, to)),
      to, std::move(result));
}

std::vector<Call> begin_all(const net::HostNetwork& network, const bootstrap::Job& job,
                            const std::vector<bootstrap::RailEndpoint>& rails,
                            const std::vector<std::optional<HostInfo>>& others) {
  std::vector<Call> calls;
  const auto master = net::SocketAddress::parse(others.front() ? others.front()->master : "");
  // No binding to an interface: a rank connects by the routes, too.
  if (job.rank != 0 && master) {
    calls.push_back(begin(job, network.start_connect(*master, net::SocketAddress(), ""), *master,
                          {.to = 0, .rail = kMasterRail}));
  }
  for (int i = 1; i < job.world_size; ++i) {
    const int to = (job.rank + i) % job.world_size;  // Avoids incast on one host.
    const auto& other = others[static_cast<std::size_t>(to)];
    if (!other) continue;
    for (std::size_t rail = 0; rail < std::min(rails.size(), other->rails.size()); ++rail) {
      const auto address = net::SocketAddress::parse(other->rails[rail].endpoint);
      if (!address) continue;
      calls.push_back(begin_over(network, job, rails[rail], *address,
                                 {.to = to, .rail = static_cast<int>(rail)}));
    }
  }
  return calls;
}

void run_handshakes(std::vector<Call>& calls, net::Deadline deadline) {
  net::PollSet set;
  for (;;) {
    set.clear();
    bool any = false;
    for (Call& call : calls) {
      if (!call.handshake) continue;
      call.place = set.add(call.handshake->socket(), call.handshake->wanted_events());
      any = true;
    }
    if (!any || deadline.passed()) return;
    set.wait(deadline);
    for (Call& call : calls) {
      if (!call.handshake || set.returned_events(call.place) == 0) continue;
      if (Status moved = call.handshake->advance(); !moved) {
        conclude(call, moved.error());
      } else if (call.handshake->done()) {
        call.handshake.reset();
      }
    }
  }
}

/// Concludes calls that have neither succeeded nor failed.
void expire(std::vector<Call>& calls) {
  for (Call& call : calls) {
    if (!call.handshake) continue;
    const bool connected = call.handshake->connected();
    call.result.outcome = connected ? Outcome::unauthenticated : Outcome::no_answer;
    call.result.error = connected ? "it accepts connections but does not answer" : "no answer";
    call.handshake.reset();
  }
}

/// Returns the info of the doctor that answers datagrams to a host's rail: the first of those that
/// share the job's port. Null: it has not reported.
const HostInfo* datagram_responder(const std::vector<std::optional<HostInfo>>& others,
                                   std::size_t to, std::size_t rail) {
  const RailInfo& there = others[to]->rails[rail];
  if (!there.echo.empty()) return &*others[to];
  for (const auto& other : others) {
    if (!other || other->host != others[to]->host || rail >= other->rails.size()) continue;
    const RailInfo& one = other->rails[rail];
    if (one.address == there.address && !one.echo.empty()) return &*other;
  }
  return nullptr;
}

Status try_datagrams(const Clock& clock, const bootstrap::RailEndpoint& from, const HostInfo& other,
                     Reachability& result) {
  const auto to =
      net::SocketAddress::parse(other.rails[static_cast<std::size_t>(result.rail)].echo);
  if (!to) return {};
  GRADWIRE_ASSIGN_OR_RETURN(
      auto client,
      EchoClient::create(clock, from.address, binding_of(from, *to), *to, echo_token(other.token)));
  GRADWIRE_ASSIGN_OR_RETURN(const auto mtu, net::interface_mtu(from.interface));
  GRADWIRE_ASSIGN_OR_RETURN(const auto largest,
                            client.largest_packet(static_cast<std::size_t>(mtu)));
  result.largest_packet = static_cast<int>(largest);
  if (largest == 0) return {};
  GRADWIRE_ASSIGN_OR_RETURN(const auto loss, client.loss(largest));
  result.datagrams = loss.asked;
  result.lost = loss.lost;
  return {};
}

}  // namespace

std::vector<Reachability> reach_all(const net::HostNetwork& network, const bootstrap::Job& job,
                                    const std::vector<bootstrap::RailEndpoint>& rails,
                                    const std::vector<std::optional<HostInfo>>& others,
                                    Duration patience) {
  std::vector<Call> calls = begin_all(network, job, rails, others);
  run_handshakes(calls, net::Deadline::after(network.clock(), patience));
  expire(calls);
  std::vector<Reachability> results;
  for (Call& call : calls) {
    if (call.result.outcome == Outcome::reached && call.result.rail != kMasterRail) {
      const auto rail = static_cast<std::size_t>(call.result.rail);
      const auto to = static_cast<std::size_t>(call.result.to);
      const HostInfo* answers = datagram_responder(others, to, rail);
      call.result.has_echo = answers != nullptr;
      // Datagrams that cannot be sent count as lost: TCP has shown that a path exists.
      if (answers != nullptr)
        (void)try_datagrams(network.clock(), rails[rail], *answers, call.result);
    }
    results.push_back(std::move(call.result));
  }
  return results;
}

namespace {

/// The other doctors of this host hand over the port at once.
constexpr Duration kSharedPortTimeout = std::chrono::seconds(10);

RailInfo rail_info(const bootstrap::RailEndpoint& rail) {
  return {.interface = rail.interface,
          .address = rail.address.host(),
          .endpoint = {},
          .echo = {},
          .mtu = net::interface_mtu(rail.interface).value_or(0),
          .megabits = negotiated_megabits(rail.interface),
          .loopback = rail.address.is_loopback()};
}

/// Returns true if the master's port is one of the rails' endpoints, which the doctors try anyway.
bool is_at_rails(const bootstrap::Job& job, const net::SocketAddress& master,
                 const std::vector<bootstrap::RailEndpoint>& rails) {
  return job.port == job.master_port &&
         std::ranges::any_of(rails, [&](const bootstrap::RailEndpoint& rail) {
           return rail.address.host() == master.host();
         });
}

bool is_of_this_host(const net::SocketAddress& address) {
  const auto interfaces = topology::list_interfaces().value_or(std::vector<topology::Interface>{});
  return address.is_loopback() ||
         std::ranges::any_of(interfaces, [&](const topology::Interface& one) {
           return std::ranges::find(one.addresses, address.host()) != one.addresses.end();
         });
}

/// If the first host's name is wrong on that host itself, diagnose_names() reports it.
bool is_own_name(const std::string& name, const HostInfo& info) {
  return !info.names.empty() && info.names.front().name == name;
}

}  // namespace

ReachabilityServer::ReachabilityServer(const net::HostNetwork& network, const bootstrap::Job& job,
                                       const std::vector<bootstrap::RailEndpoint>& rails,
                                       MasterPort port, HostInfo& info)
    : network_(network) {
  for (const bootstrap::RailEndpoint& rail : rails) info.rails.push_back(rail_info(rail));
  if (job.port == 0) {
    listen_at_free_ports(rails, info);
  } else if (!rails.empty()) {
    share_port(job, rails, info);
  }
  if (port == MasterPort::examined && job.rank == 0) listen_as_rank_0(job, rails, info);
  if (job.port == 0 || job.local_rank == 0) bind_datagram_sockets(job, rails, info);
  info.token = random_hex(8);
  echo_ = std::make_unique<EchoServer>(std::move(datagram_sockets_), echo_token(info.token));
  const auto admit = [me = job.rank, world_size = job.world_size](const bootstrap::Claims& claims) {
    return claims.to == me ? bootstrap::check_rank(claims, world_size)
                           : bootstrap::Verdict::impossible;
  };
  handshakes_ = std::make_unique<bootstrap::HandshakeServer>(
      network.clock(), std::move(listeners_),
      bootstrap::HandshakeServer::Options{
          .credentials = bootstrap::one_secret({.secret = job.secret, .purpose = kDoctorPurpose}),
          .world_size = job.world_size,
          .expected = static_cast<std::size_t>(job.world_size) * rails.size()},
      admit, [](const bootstrap::AuthenticatedConnection&) {});
  auto thread = net::LoopThread::start(network, "cannot answer the other hosts",
                                       [this](const net::Socket& stop) { run(stop); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    info.problems.push_back(thread.error().message);
  }
}

void ReachabilityServer::listen_at_free_ports(const std::vector<bootstrap::RailEndpoint>& rails,
                                              HostInfo& info) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto socket = network_.listen_on(rails[i].address.with_port(0));
    if (!socket) {
      info.problems.push_back(socket.error().message);
      continue;
    }
    info.rails[i].endpoint = net::local_address(*socket).to_string();
    listeners_.push_back(std::make_unique<bootstrap::SocketListener>(std::move(*socket)));
  }
}

void ReachabilityServer::share_port(const bootstrap::Job& job,
                                    const std::vector<bootstrap::RailEndpoint>& rails,
                                    HostInfo& info) {
  bootstrap::PortMember member{.destination = {bootstrap::service_number(kDoctorPurpose), job.rank},
                               .addresses = {}};
  for (const bootstrap::RailEndpoint& rail : rails)
    member.addresses.push_back(rail.address.with_port(job.port));
  auto listener = bootstrap::SharedPortListener::open(
      network_, bootstrap::shared_port_name(job.secret, job.port), member,
      net::Deadline::after(network_.clock(), kSharedPortTimeout));
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
void ReachabilityServer::listen_as_rank_0(const bootstrap::Job& job,
                                          const std::vector<bootstrap::RailEndpoint>& rails,
                                          HostInfo& info) {
  const auto addresses = net::resolve(job.master_address, job.master_port);
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
  listeners_.push_back(std::make_unique<bootstrap::SocketListener>(std::move(*socket)));
}

void ReachabilityServer::bind_datagram_sockets(const bootstrap::Job& job,
                                               const std::vector<bootstrap::RailEndpoint>& rails,
                                               HostInfo& info) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto socket = net::bind_datagrams(rails[i].address.with_port(job.port));
    // Jobs need no datagrams, so that a UDP port in use is not a problem: take a free one.
    if (!socket && job.port != 0) socket = net::bind_datagrams(rails[i].address.with_port(0));
    if (!socket) {
      info.problems.push_back(socket.error().message);
      continue;
    }
    info.rails[i].echo = net::local_address(*socket).to_string();
    datagram_sockets_.push_back(std::move(*socket));
  }
}

void ReachabilityServer::run(const net::Socket& stop_end) {
  net::PollSet set;
  for (;;) {
    set.clear();
    const std::size_t stop = set.add(stop_end, POLLIN);
    set.wait(
        handshakes_->watch(set, net::Deadline::after(network_.clock(), std::chrono::hours(1))));
    if (set.returned_events(stop) != 0 || !handshakes_->advance(set)) return;
  }
}

}  // namespace gradwire::cli

#include "gradwire/cli/doctor/reach.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "gradwire/bootstrap/handshake.h"
#include "gradwire/cli/doctor/reachability_server.h"
#include "gradwire/cli/probe/binding.h"
#include "gradwire/cli/probe/echo.h"
#include "gradwire/net/poll_set.h"

namespace gradwire {
namespace {

using Outcome = Reachability::Outcome;

/// One attempt to reach an endpoint by TCP.
struct Call {
  Reachability result;
  std::unique_ptr<ClientHandshake> handshake;
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
Call begin(const Job& job, Result<Socket> socket, const SocketAddress& to, Reachability result) {
  Call call{.result = std::move(result), .handshake = nullptr};
  if (!socket) {
    conclude(call, socket.error());
    return call;
  }
  call.handshake = std::make_unique<ClientHandshake>(
      std::move(*socket), to.to_string(),
      SharedSecret{.secret = job.secret, .purpose = kDoctorPurpose},
      Claims{.from = job.rank, .to = call.result.to, .world_size = job.world_size});
  return call;
}

Call begin_over(const HostNetwork& network, const Job& job, const RailEndpoint& from,
                const SocketAddress& to, Reachability result) {
  result.detour = is_detour(from, to);
  const bool same_family = from.address.family() == to.family();
  return begin(job,
               network.start_connect(to, same_family ? from.address.with_port(0) : SocketAddress(),
                                     binding_of(from, to)),
               to, std::move(result));
}

std::vector<Call> begin_all(const HostNetwork& network, const Job& job,
                            const std::vector<RailEndpoint>& rails,
                            const std::vector<std::optional<HostInfo>>& others) {
  std::vector<Call> calls;
  const auto master = SocketAddress::parse(others.front() ? others.front()->master : "");
  // No binding to an interface: a rank connects by the routes, too.
  if (job.rank != 0 && master) {
    calls.push_back(begin(job, network.start_connect(*master, SocketAddress(), ""), *master,
                          {.to = 0, .rail = kMasterRail}));
  }
  for (int i = 1; i < job.world_size; ++i) {
    const int to = (job.rank + i) % job.world_size;  // Avoids incast on one host.
    const auto& other = others[static_cast<std::size_t>(to)];
    if (!other) continue;
    for (std::size_t rail = 0; rail < std::min(rails.size(), other->rails.size()); ++rail) {
      const auto address = SocketAddress::parse(other->rails[rail].endpoint);
      if (!address) continue;
      calls.push_back(begin_over(network, job, rails[rail], *address,
                                 {.to = to, .rail = static_cast<int>(rail)}));
    }
  }
  return calls;
}

void run_handshakes(std::vector<Call>& calls, Deadline deadline) {
  PollSet set;
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

Status try_datagrams(const Clock& clock, const RailEndpoint& from, const HostInfo& other,
                     Reachability& result) {
  const auto to = SocketAddress::parse(other.rails[static_cast<std::size_t>(result.rail)].echo);
  if (!to) return {};
  auto client =
      EchoClient::create(clock, from.address, binding_of(from, *to), *to, echo_token(other.token));
  if (!client) return tl::unexpected<Error>(client.error());
  const auto mtu = interface_mtu(from.interface);
  if (!mtu) return tl::unexpected<Error>(mtu.error());
  const auto largest = client->largest_packet(static_cast<std::size_t>(*mtu));
  if (!largest) return tl::unexpected<Error>(largest.error());
  result.largest_packet = static_cast<int>(*largest);
  if (*largest == 0) return {};
  const auto loss = client->loss(*largest);
  if (!loss) return tl::unexpected<Error>(loss.error());
  result.datagrams = loss->asked;
  result.lost = loss->lost;
  return {};
}

}  // namespace

std::vector<Reachability> reach_all(const HostNetwork& network, const Job& job,
                                    const std::vector<RailEndpoint>& rails,
                                    const std::vector<std::optional<HostInfo>>& others,
                                    Duration patience) {
  std::vector<Call> calls = begin_all(network, job, rails, others);
  run_handshakes(calls, Deadline::after(network.clock(), patience));
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

}  // namespace gradwire

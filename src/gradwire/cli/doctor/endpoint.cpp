#include "gradwire/cli/doctor/endpoint.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gradwire/base/random_hex.h"
#include "gradwire/bootstrap/shared_port.h"
#include "gradwire/cli/doctor/look.h"
#include "gradwire/net/datagram.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire {
namespace {

/// The other doctors of this host hand over the port at once.
constexpr Duration kForPort = std::chrono::seconds(10);

RailFacts look_at_rail(const RailPlace& rail) {
  return {.interface = rail.interface,
          .address = rail.address.host(),
          .endpoint = {},
          .echo = {},
          .mtu = interface_mtu(rail.interface).value_or(0),
          .megabits = negotiated_megabits(rail.interface),
          .loopback = rail.address.is_loopback()};
}

/// Returns true if the master's port is one of the rails' endpoints, which the doctors try anyway.
bool is_at_rails(const Job& job, const SocketAddress& master, const std::vector<RailPlace>& rails) {
  return job.port == job.master_port && std::ranges::any_of(rails, [&](const RailPlace& rail) {
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
bool is_own_name(const std::string& name, const HostFacts& facts) {
  return !facts.names.empty() && facts.names.front().name == name;
}

}  // namespace

Endpoint::Endpoint(const Job& job, const std::vector<RailPlace>& rails, MasterPort port,
                   HostFacts& facts)
    : stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (const RailPlace& rail : rails) facts.rails.push_back(look_at_rail(rail));
  if (job.port == 0) {
    listen_at_free_ports(rails, facts);
  } else if (!rails.empty()) {
    share_port(job, rails, facts);
  }
  if (port == MasterPort::examined && job.rank == 0) stand_in_for_rank_0(job, rails, facts);
  if (job.port == 0 || job.local_rank == 0) take_datagrams(job, rails, facts);
  facts.token = random_hex(8);
  echo_ = std::make_unique<Echo>(std::move(datagram_sockets_), echo_token(facts.token));
  const auto admit = [me = job.rank](const Claims& claims) {
    return claims.to == me ? Verdict::accepted : Verdict::impossible;
  };
  gate_ = std::make_unique<Gate>(
      std::move(doors_),
      Gate::Options{.shared = {.secret = job.secret, .purpose = kDoctorPurpose},
                    .world_size = job.world_size,
                    .expected = static_cast<std::size_t>(job.world_size) * rails.size()},
      admit, [](const Admitted&) {});
  thread_ = std::thread([this] { run(); });
}

Endpoint::~Endpoint() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.descriptor(), &one, sizeof one);
  thread_.join();
}

void Endpoint::listen_at_free_ports(const std::vector<RailPlace>& rails, HostFacts& facts) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto listener = listen_on(rails[i].address.with_port(0));
    if (!listener) {
      facts.problems.push_back(listener.error().message);
      continue;
    }
    facts.rails[i].endpoint = local_address(*listener).to_string();
    doors_.push_back(std::make_unique<ListeningDoor>(std::move(*listener)));
  }
}

void Endpoint::share_port(const Job& job, const std::vector<RailPlace>& rails, HostFacts& facts) {
  PortMember member{.destination = {service_number(kDoctorPurpose), job.rank}, .addresses = {}};
  for (const RailPlace& rail : rails) member.addresses.push_back(rail.address.with_port(job.port));
  auto door = SharedPortDoor::open(shared_port_name(job.secret, job.port), member,
                                   Deadline::after(kForPort));
  if (!door) {
    facts.port_problems.push_back(door.error().message);
    return;
  }
  for (std::size_t i = 0; i < rails.size(); ++i) {
    facts.rails[i].endpoint = member.addresses[i].to_string();
  }
  doors_.push_back(std::move(*door));
}

/// Listens at the first of the master's addresses that belongs to this host.
void Endpoint::stand_in_for_rank_0(const Job& job, const std::vector<RailPlace>& rails,
                                   HostFacts& facts) {
  const auto addresses = resolve(job.master_address, job.master_port);
  if (!addresses) return;  // find_rails() reports that.
  const auto own = std::ranges::find_if(*addresses, is_of_this_host);
  if (own == addresses->end()) {
    if (is_own_name(job.master_address, facts)) return;
    facts.master_problem = fmt::format("{} is not an address of this host", job.master_address);
    return;
  }
  if (is_at_rails(job, *own, rails)) return;
  auto listener = listen_on(*own);
  if (!listener) {
    facts.master_problem = listener.error().message;
    return;
  }
  // A loopback address is reported by diagnose_names() and diagnose_interfaces().
  if (!own->is_loopback()) facts.master = own->to_string();
  doors_.push_back(std::make_unique<ListeningDoor>(std::move(*listener)));
}

void Endpoint::take_datagrams(const Job& job, const std::vector<RailPlace>& rails,
                              HostFacts& facts) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    auto socket = bind_datagrams(rails[i].address.with_port(job.port));
    // Jobs need no datagrams, so that a UDP port in use is not a problem: take a free one.
    if (!socket && job.port != 0) socket = bind_datagrams(rails[i].address.with_port(0));
    if (!socket) {
      facts.problems.push_back(socket.error().message);
      continue;
    }
    facts.rails[i].echo = local_address(*socket).to_string();
    datagram_sockets_.push_back(std::move(*socket));
  }
}

void Endpoint::run() {
  PollSet set;
  for (;;) {
    set.clear();
    const std::size_t stop = set.add(stop_, POLLIN);
    set.wait(gate_->watch(set, Deadline::after(std::chrono::hours(1))));
    if (set.happened(stop) != 0 || !gate_->advance(set)) return;
  }
}

}  // namespace gradwire

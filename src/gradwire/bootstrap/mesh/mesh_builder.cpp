#include "gradwire/bootstrap/mesh/mesh_builder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/mesh/local_rails.h"

namespace gradwire::bootstrap {
namespace {

/// Enough to keep two cores busy, few enough for any listen backlog.
constexpr std::size_t kMaxConcurrentAttempts = 64;

constexpr Duration kRetryInterval = std::chrono::milliseconds(50);

/// Maximum time without a free file descriptor; other users may release some.
constexpr Duration kShortage = std::chrono::seconds(5);

/// A rank that connected and hung up because it did not get the response connects again within this
/// time.
constexpr Duration kReconnectTimeout = std::chrono::seconds(1);

std::size_t connections_of(Rank rank, const std::vector<RankEndpoint>& endpoints) {
  std::size_t count = 0;
  for (std::size_t other = 0; other < endpoints.size(); ++other) {
    if (static_cast<Rank>(other) == rank) continue;
    count += static_cast<std::size_t>(
        rails_between(endpoints[static_cast<std::size_t>(rank)], endpoints[other]));
  }
  return count;
}

tl::unexpected<Error> could_not_connect(const Error& error) {
  return failure(ErrorKind::disconnected,
                 error.message +
                     ": it had joined, so it has exited, or the network blocks traffic "
                     "between these two addresses (a cable, a route, a firewall, NAT)");
}

/// The rendezvous has verified that both ranks know the secret.
tl::unexpected<Error> was_refused(const Error& error) {
  return failure(
      ErrorKind::corrupted,
      error.message +
          "; but both have proved to rank 0 that they know it, so bytes were corrupted in "
          "transit, or another program listens there");
}

}  // namespace

std::string mesh_purpose(const std::string& scope) {
  return "mesh " + scope;
}

MeshBuilder::MeshBuilder(const net::HostNetwork& network, Plan plan, Listeners listeners)
    : network_(network),
      clock_(network.clock()),
      plan_(std::move(plan)),
      sockets_(plan_.endpoints.size()),
      keys_(plan_.endpoints.size()),
      handshakes_(
          clock_, std::move(listeners),
          {.credentials = one_secret(plan_.shared),
           .world_size = ranks(),
           .expected = connections_of(plan_.rank, plan_.endpoints)},
          [this](const Claims& claims) { return admit(claims); },
          [this](AuthenticatedConnection connection) { add_connection(std::move(connection)); }) {
  for (Rank other = 0; other < ranks(); ++other) {
    if (other == plan_.rank) continue;
    const int rails = rails_between(endpoint_of(plan_.rank), endpoint_of(other));
    sockets_[static_cast<std::size_t>(other)].resize(static_cast<std::size_t>(rails));
    keys_[static_cast<std::size_t>(other)].resize(static_cast<std::size_t>(rails));
    for (int rail = 0; other < plan_.rank && rail < rails; ++rail) {
      outgoing_.push_back({.to = other, .rail = rail});
    }
  }
}

void MeshBuilder::keep(Rank rank, int rail, net::Socket socket, const net::SessionKey& key) {
  socket_to(rank, rail) = std::move(socket);
  keys_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(rail)] = key;
}

Verdict MeshBuilder::admit(const Claims& claims) {
  const Verdict verdict = check_rank(claims, ranks());
  if (verdict != Verdict::accepted) return verdict;
  if (claims.to != plan_.rank || claims.from <= plan_.rank) return Verdict::impossible;
  if (claims.rail < 0 ||
      claims.rail >= rails_between(endpoint_of(plan_.rank), endpoint_of(claims.from)))
    return Verdict::impossible;
  if (claims.encrypts != plan_.encrypts) return Verdict::other_encryption;
  net::Socket& before = socket_to(claims.from, claims.rail);
  // An earlier connection of the rank may have broken before our verdict arrived; the rank then
  // connects again.
  if (before.valid() && net::has_ended(before)) before.close();
  return before.valid() ? Verdict::duplicate : Verdict::accepted;
}

void MeshBuilder::add_connection(AuthenticatedConnection connection) {
  const Claims& claims = connection.claims;
  const net::SocketAddress from = net::peer_address(connection.socket);
  warn_of_nat(claims, from);
  const std::string interface = interface_for(claims.rail, claims.from, from);
  // Without permission for that, routing decides, as in start_connect().
  if (!interface.empty()) (void)net::bind_to_interface(connection.socket, interface);
  keep(claims.from, claims.rail, std::move(connection.socket), connection.key);
  disconnected_.erase(claims.from);
}

/// A rank connects from the address on which it listens. A NAT router replaces that address, and
/// hosts beyond the router cannot connect to the original one.
void MeshBuilder::warn_of_nat(const Claims& claims, const net::SocketAddress& from) {
  const RankEndpoint& endpoint = endpoint_of(claims.from);
  const auto& own = endpoint.rails[static_cast<std::size_t>(claims.rail)].address;
  if (own.family() != from.family() || own.host() == from.host()) return;
  if (!behind_nat_.insert(claims.from).second) return;
  log_warning(
      "{} is behind NAT: its connection arrives from {}. Other hosts cannot connect to it: put all "
      "hosts into one network, such as a VPN, and choose its interface (GRADWIRE_INTERFACE)",
      endpoint.describe(claims.from, claims.rail), from.host());
}

bool MeshBuilder::complete() const {
  return std::ranges::all_of(sockets_, [](const std::vector<net::Socket>& rails) {
    return std::ranges::all_of(rails, &net::Socket::valid);
  });
}

Status MeshBuilder::run(net::Deadline deadline, Duration timeout) {
  net::PollSet set;
  next_check_ = clock_.now() + Start::kCheckInterval;
  // A failure reported before this call does not make the socket readable again.
  if (plan_.start != nullptr && plan_.start->socket().valid()) {
    GRADWIRE_RETURN_IF_ERROR(plan_.start->check());
  }
  while (!complete()) {
    if (deadline.passed()) {
      const double seconds = std::chrono::duration<double>(timeout).count();
      return failure(ErrorKind::timeout,
                     fmt::format("rank {} could not connect to {} within {:.3g} s, although all "
                                 "have joined: does a firewall, or the choice of interface, block "
                                 "the traffic?",
                                 plan_.rank, missing_ranks(), seconds));
    }
    set.clear();
    set.wait(watch(set, deadline));
    GRADWIRE_RETURN_IF_ERROR(advance(set));
  }
  return {};
}

Status MeshBuilder::advance(const net::PollSet& set) {
  // First, because the other errors may only be consequences of a reported failure.
  GRADWIRE_RETURN_IF_ERROR(check_watch(set));
  GRADWIRE_RETURN_IF_ERROR(check_established(set));
  GRADWIRE_RETURN_IF_ERROR(advance_outgoing(set));
  return handshakes_.advance(set);
}

net::Deadline MeshBuilder::watch(net::PollSet& set, net::Deadline deadline) {
  Time next = handshakes_.watch(set, deadline).at();
  const std::size_t active = std::min(outgoing_.size(), kMaxConcurrentAttempts);
  for (std::size_t i = 0; i < active; ++i) {
    Attempt& attempt = outgoing_[i];
    if (attempt.handshake) {
      attempt.poll_index = set.add(attempt.handshake->socket(), attempt.handshake->wanted_events());
    } else {
      next = std::min(next, attempt.not_before);
    }
  }
  for (const auto& [rank, since] : disconnected_) next = std::min(next, since + kReconnectTimeout);
  watch_established(set);
  if (plan_.start == nullptr) return net::Deadline(clock_, next);
  watch_index_ = set.add(plan_.start->socket(), POLLIN);
  return net::Deadline(clock_, plan_.start->socket().valid() ? next : std::min(next, next_check_));
}

/// Reads nothing; POLLRDHUP reports only that the other end has hung up.
void MeshBuilder::watch_established(net::PollSet& set) {
  established_.clear();
  for (Rank rank = 0; rank < ranks(); ++rank) {
    const std::vector<net::Socket>& rails = sockets_[static_cast<std::size_t>(rank)];
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      if (!rails[rail].valid()) continue;
      established_.push_back({rank, static_cast<int>(rail), set.add(rails[rail], POLLRDHUP)});
    }
  }
}

/// A lower rank was connected and had answered, so it is gone. A higher rank may not have received
/// our verdict and may connect again.
Status MeshBuilder::check_established(const net::PollSet& set) {
  const Time now = clock_.now();
  for (const Established& connection : established_) {
    if (set.returned_events(connection.poll_index) == 0) continue;
    socket_to(connection.rank, connection.rail).close();
    disconnected_.try_emplace(connection.rank, connection.rank < plan_.rank ? Time{} : now);
  }
  for (const auto& [rank, since] : disconnected_) {
    if (now - since < kReconnectTimeout) continue;
    return failure(ErrorKind::disconnected,
                   fmt::format("{} closed its connection with rank {} while the job started",
                               endpoint_of(rank).describe(rank), plan_.rank));
  }
  return {};
}

Status MeshBuilder::check_watch(const net::PollSet& set) {
  if (plan_.start == nullptr) return {};
  const Time now = clock_.now();
  const bool is_time = !plan_.start->socket().valid() && now >= next_check_;
  if (is_time) next_check_ = now + Start::kCheckInterval;
  return is_time || set.returned_events(watch_index_) != 0 ? plan_.start->check() : Status();
}

Status MeshBuilder::advance_outgoing(const net::PollSet& set) {
  const Time now = clock_.now();
  const std::size_t active = std::min(outgoing_.size(), kMaxConcurrentAttempts);
  for (std::size_t i = 0; i < active; ++i) {
    Attempt& attempt = outgoing_[i];
    const bool begins = !attempt.handshake && attempt.not_before <= now;
    const bool moves = attempt.handshake && set.returned_events(attempt.poll_index) != 0;
    if (begins) {
      GRADWIRE_RETURN_IF_ERROR(begin(attempt));
    } else if (moves) {
      GRADWIRE_RETURN_IF_ERROR(advance_handshake(attempt));
    }
  }
  std::erase_if(outgoing_, [this](const Attempt& attempt) {
    return socket_to(attempt.to, attempt.rail).valid();
  });
  return {};
}

Status MeshBuilder::begin(Attempt& attempt) {
  const RankEndpoint& endpoint = endpoint_of(attempt.to);
  const net::SocketAddress& to = endpoint.rails[static_cast<std::size_t>(attempt.rail)].address;
  const RailEndpoint& own = own_rail(attempt.rail);
  const bool same_family = own.address.family() == to.family();
  Result<net::Socket> socket =
      network_.start_connect(to, same_family ? own.address.with_port(0) : net::SocketAddress(),
                             same_family ? interface_for(attempt.rail, attempt.to, to) : "");
  if (!socket && socket.error().kind == ErrorKind::system) {
    return wait_for_descriptors(attempt, socket.error());
  }
  if (!socket) return could_not_connect(socket.error());
  attempt.shortage_since.reset();
  attempt.handshake = std::make_unique<ClientHandshake>(
      std::move(*socket), endpoint.describe(attempt.to, attempt.rail), plan_.shared,
      Claims{.from = plan_.rank,
             .to = attempt.to,
             .world_size = ranks(),
             .rail = attempt.rail,
             .encrypts = plan_.encrypts});
  return {};
}

/// Unauthenticated peers on the port, or other parts of the program, may hold them for a moment.
Status MeshBuilder::wait_for_descriptors(Attempt& attempt, const Error& error) {
  const Time now = clock_.now();
  if (!attempt.shortage_since) attempt.shortage_since = now;
  if (now - *attempt.shortage_since >= kShortage) return tl::unexpected<Error>(error);
  attempt.not_before = now + kRetryInterval;
  return {};
}

/// Returns the interface to bind a connection to so that its packets leave by the rail's interface;
/// empty if they already do, or if binding is not safe.
std::string MeshBuilder::interface_for(int rail, Rank peer, const net::SocketAddress& other) {
  const RailEndpoint& own = own_rail(rail);
  if (same_machine(endpoint_of(plan_.rank), endpoint_of(peer)) || !leaves_elsewhere(own, other))
    return "";
  if (answers_for_itself_alone(own)) return own.interface;
  if (!std::exchange(warned_, true)) {
    log_warning(
        "packets from {} to {} do not leave by {}: put the network interfaces into different "
        "subnets, or set net.ipv4.conf.all.arp_ignore=1 and arp_announce=2 (sysctl) on every host",
        own.address.host(), other.host(), own.interface);
  }
  return "";
}

Status MeshBuilder::advance_handshake(Attempt& attempt) {
  const Status moved = attempt.handshake->advance();
  if (moved) {
    if (attempt.handshake->done()) {
      const net::SessionKey key = attempt.handshake->session_key();
      keep(attempt.to, attempt.rail, attempt.handshake->take_socket(), key);
    }
    return {};
  }
  const bool known = plan_.start != nullptr && plan_.start->is_authenticated();
  if (known && moved.error().kind == ErrorKind::refused) return was_refused(moved.error());
  if (moved.error().kind != ErrorKind::disconnected) return moved;
  if (!may_retry(attempt)) return could_not_connect(moved.error());
  attempt.handshake.reset();
  attempt.not_before = clock_.now() + kRetryInterval;
  return {};
}

/// Each rank listens until it is connected to all others, so an unreachable rank is gone. A rank
/// that hangs up during the handshake may only be short of resources.
bool MeshBuilder::may_retry(Attempt& attempt) const {
  if (attempt.handshake->connected()) return true;
  const Time now = clock_.now();
  if (!attempt.refused_since) attempt.refused_since = now;
  return now - *attempt.refused_since < plan_.patience;
}

std::string MeshBuilder::missing_ranks() const {
  std::vector<std::string> names;
  for (Rank other = 0; other < ranks(); ++other) {
    const std::vector<net::Socket>& rails = sockets_[static_cast<std::size_t>(other)];
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      if (rails[rail].valid()) continue;
      names.push_back(endpoint_of(other).describe(other, static_cast<int>(rail)));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gradwire::bootstrap

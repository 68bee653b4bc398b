#include "gradwire/bootstrap/mesh_builder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "gradwire/bootstrap/local_rails.h"

namespace gradwire {
namespace {

/// Enough to keep two cores busy, few enough for any listen backlog.
constexpr std::size_t kCallsAtOnce = 64;

constexpr Duration kBeforeNextAttempt = std::chrono::milliseconds(50);

/// Maximum time without a free file descriptor; other users may release some.
constexpr Duration kShortage = std::chrono::seconds(5);

/// A rank that connected and hung up because it did not get the response connects again within this
/// time.
constexpr Duration kCallsAgain = std::chrono::seconds(1);

std::size_t connections_of(Rank rank, const std::vector<RankPlace>& places) {
  std::size_t count = 0;
  for (std::size_t other = 0; other < places.size(); ++other) {
    if (static_cast<Rank>(other) == rank) continue;
    count += static_cast<std::size_t>(
        rails_between(places[static_cast<std::size_t>(rank)], places[other]));
  }
  return count;
}

tl::unexpected<Error> could_not_connect(const Error& error) {
  return failure(ErrorKind::disconnected,
                 error.message +
                     ": it had joined, so it has exited, or the network blocks traffic "
                     "between these two addresses (a cable, a route, a firewall)");
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

MeshBuilder::MeshBuilder(Plan plan, Doors doors)
    : plan_(std::move(plan)),
      sockets_(plan_.places.size()),
      keys_(plan_.places.size()),
      gate_(
          std::move(doors),
          {.shared = plan_.shared,
           .world_size = ranks(),
           .expected = connections_of(plan_.rank, plan_.places)},
          [this](const Claims& claims) { return admit(claims); },
          [this](Admitted admitted) { enter(std::move(admitted)); }) {
  for (Rank other = 0; other < ranks(); ++other) {
    if (other == plan_.rank) continue;
    const int rails = rails_between(place_of(plan_.rank), place_of(other));
    sockets_[static_cast<std::size_t>(other)].resize(static_cast<std::size_t>(rails));
    keys_[static_cast<std::size_t>(other)].resize(static_cast<std::size_t>(rails));
    for (int rail = 0; other < plan_.rank && rail < rails; ++rail) {
      calls_.push_back({.to = other, .rail = rail});
    }
  }
}

void MeshBuilder::keep(Rank rank, int rail, Socket socket, const SessionKey& key) {
  socket_to(rank, rail) = std::move(socket);
  keys_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(rail)] = key;
}

Verdict MeshBuilder::admit(const Claims& claims) {
  if (claims.to != plan_.rank || claims.from <= plan_.rank) return Verdict::impossible;
  if (claims.rail < 0 || claims.rail >= rails_between(place_of(plan_.rank), place_of(claims.from)))
    return Verdict::impossible;
  if (claims.encrypts != plan_.encrypts) return Verdict::other_encryption;
  Socket& before = socket_to(claims.from, claims.rail);
  // An earlier connection of the rank may have broken before our verdict arrived; the rank then
  // connects again.
  if (before.valid() && has_ended(before)) before.close();
  return before.valid() ? Verdict::duplicate : Verdict::accepted;
}

void MeshBuilder::enter(Admitted admitted) {
  const Claims& claims = admitted.claims;
  const std::string interface =
      interface_for(claims.rail, claims.from, peer_address(admitted.socket));
  // Without permission for that, routing decides, as in start_connect().
  if (!interface.empty()) (void)bind_to_interface(admitted.socket, interface);
  keep(claims.from, claims.rail, std::move(admitted.socket), admitted.key);
  hung_up_.erase(claims.from);
}

bool MeshBuilder::complete() const {
  return std::ranges::all_of(sockets_, [](const std::vector<Socket>& rails) {
    return std::ranges::all_of(rails, &Socket::valid);
  });
}

Status MeshBuilder::run(Deadline deadline, Duration timeout) {
  PollSet set;
  next_look_ = SteadyClock().now() + StartWatch::kLookEvery;
  // A failure reported before this call does not make the socket readable again.
  if (plan_.watch != nullptr && plan_.watch->socket().valid()) {
    if (Status heard = plan_.watch->look(); !heard) return heard;
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
    if (Status advanced = advance(set); !advanced) return advanced;
  }
  return {};
}

Status MeshBuilder::advance(const PollSet& set) {
  // First, because the other errors may only be consequences of a reported failure.
  if (Status heard = hear(set); !heard) return heard;
  if (Status standing = look_at_standing(set); !standing) return standing;
  if (Status called = advance_calls(set); !called) return called;
  return gate_.advance(set);
}

Deadline MeshBuilder::watch(PollSet& set, Deadline deadline) {
  Time next = gate_.watch(set, deadline).at();
  const std::size_t active = std::min(calls_.size(), kCallsAtOnce);
  for (std::size_t i = 0; i < active; ++i) {
    Call& call = calls_[i];
    if (call.handshake) {
      call.place = set.add(call.handshake->socket(), call.handshake->wanted_events());
    } else {
      next = std::min(next, call.not_before);
    }
  }
  for (const auto& [rank, since] : hung_up_) next = std::min(next, since + kCallsAgain);
  watch_standing(set);
  if (plan_.watch == nullptr) return Deadline(next);
  news_place_ = set.add(plan_.watch->socket(), POLLIN);
  return Deadline(plan_.watch->socket().valid() ? next : std::min(next, next_look_));
}

/// Reads nothing; POLLRDHUP reports only that the other end has hung up.
void MeshBuilder::watch_standing(PollSet& set) {
  standing_.clear();
  for (Rank rank = 0; rank < ranks(); ++rank) {
    const std::vector<Socket>& rails = sockets_[static_cast<std::size_t>(rank)];
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      if (!rails[rail].valid()) continue;
      standing_.push_back({rank, static_cast<int>(rail), set.add(rails[rail], POLLRDHUP)});
    }
  }
}

/// A lower rank was connected and had answered, so it is gone. A higher rank may not have received
/// our verdict and may connect again.
Status MeshBuilder::look_at_standing(const PollSet& set) {
  const Time now = SteadyClock().now();
  for (const Standing& standing : standing_) {
    if (set.happened(standing.place) == 0) continue;
    socket_to(standing.rank, standing.rail).close();
    hung_up_.try_emplace(standing.rank, standing.rank < plan_.rank ? Time{} : now);
  }
  for (const auto& [rank, since] : hung_up_) {
    if (now - since < kCallsAgain) continue;
    return failure(ErrorKind::disconnected,
                   fmt::format("{} closed its connection with rank {} while the job started",
                               place_of(rank).describe(rank), plan_.rank));
  }
  return {};
}

Status MeshBuilder::hear(const PollSet& set) {
  if (plan_.watch == nullptr) return {};
  const Time now = SteadyClock().now();
  const bool is_time = !plan_.watch->socket().valid() && now >= next_look_;
  if (is_time) next_look_ = now + StartWatch::kLookEvery;
  return is_time || set.happened(news_place_) != 0 ? plan_.watch->look() : Status();
}

Status MeshBuilder::advance_calls(const PollSet& set) {
  const Time now = SteadyClock().now();
  const std::size_t active = std::min(calls_.size(), kCallsAtOnce);
  for (std::size_t i = 0; i < active; ++i) {
    Call& call = calls_[i];
    const bool begins = !call.handshake && call.not_before <= now;
    const bool moves = call.handshake && set.happened(call.place) != 0;
    if (begins) {
      if (Status begun = begin(call); !begun) return begun;
    } else if (moves) {
      if (Status moved = move_on(call); !moved) return moved;
    }
  }
  std::erase_if(calls_, [this](const Call& call) { return socket_to(call.to, call.rail).valid(); });
  return {};
}

Status MeshBuilder::begin(Call& call) {
  const RankPlace& place = place_of(call.to);
  const SocketAddress& to = place.rails[static_cast<std::size_t>(call.rail)].address;
  const RailPlace& own = own_rail(call.rail);
  const bool same_family = own.address.family() == to.family();
  Result<Socket> socket =
      start_connect(to, same_family ? own.address.with_port(0) : SocketAddress(),
                    same_family ? interface_for(call.rail, call.to, to) : "");
  if (!socket && socket.error().kind == ErrorKind::system) {
    return wait_for_descriptors(call, socket.error());
  }
  if (!socket) return could_not_connect(socket.error());
  call.short_since.reset();
  call.handshake = std::make_unique<ClientHandshake>(
      std::move(*socket), place.describe(call.to, call.rail), plan_.shared,
      Claims{.from = plan_.rank,
             .to = call.to,
             .world_size = ranks(),
             .rail = call.rail,
             .encrypts = plan_.encrypts});
  return {};
}

/// Unauthenticated peers on the port, or other parts of the program, may hold them for a moment.
Status MeshBuilder::wait_for_descriptors(Call& call, const Error& error) {
  const Time now = SteadyClock().now();
  if (!call.short_since) call.short_since = now;
  if (now - *call.short_since >= kShortage) return tl::unexpected<Error>(error);
  call.not_before = now + kBeforeNextAttempt;
  return {};
}

/// Returns the interface to bind a connection to so that its packets leave by the rail's interface;
/// empty if they already do, or if binding is not safe.
std::string MeshBuilder::interface_for(int rail, Rank peer, const SocketAddress& other) {
  const RailPlace& own = own_rail(rail);
  if (same_machine(place_of(plan_.rank), place_of(peer)) || !leaves_elsewhere(own, other))
    return "";
  if (answers_for_itself_alone(own)) return own.interface;
  if (!std::exchange(warned_, true)) {
    spdlog::warn(
        "packets from {} to {} do not leave by {}: put the network interfaces into different "
        "subnets, or set net.ipv4.conf.all.arp_ignore=1 and arp_announce=2 (sysctl) on every host",
        own.address.host(), other.host(), own.interface);
  }
  return "";
}

Status MeshBuilder::move_on(Call& call) {
  const Status moved = call.handshake->advance();
  if (moved) {
    if (call.handshake->done()) {
      const SessionKey key = call.handshake->session_key();
      keep(call.to, call.rail, call.handshake->take_socket(), key);
    }
    return {};
  }
  const bool known = plan_.watch != nullptr && plan_.watch->is_authenticated();
  if (known && moved.error().kind == ErrorKind::refused) return was_refused(moved.error());
  if (moved.error().kind != ErrorKind::disconnected) return moved;
  if (!may_come_back(call)) return could_not_connect(moved.error());
  call.handshake.reset();
  call.not_before = SteadyClock().now() + kBeforeNextAttempt;
  return {};
}

/// Each rank listens until it is connected to all others, so an unreachable rank is gone. A rank
/// that hangs up during the handshake may only be short of resources.
bool MeshBuilder::may_come_back(Call& call) const {
  if (call.handshake->connected()) return true;
  const Time now = SteadyClock().now();
  if (!call.refused_since) call.refused_since = now;
  return now - *call.refused_since < plan_.patience;
}

std::string MeshBuilder::missing_ranks() const {
  std::vector<std::string> names;
  for (Rank other = 0; other < ranks(); ++other) {
    const std::vector<Socket>& rails = sockets_[static_cast<std::size_t>(other)];
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      if (rails[rail].valid()) continue;
      names.push_back(place_of(other).describe(other, static_cast<int>(rail)));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gradwire

#include "gradwire/comm/mesh_builder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire {
namespace {

/// Enough to keep two cores busy, few enough for any backlog of connections.
constexpr std::size_t kCallsAtOnce = 64;

constexpr Duration kBeforeNextAttempt = std::chrono::milliseconds(50);

}  // namespace

MeshBuilder::MeshBuilder(Rank rank, std::string secret, std::string scope,
                         std::vector<RankPlace> places, Socket listener)
    : rank_(rank),
      shared_{.secret = std::move(secret), .purpose = "mesh " + scope},
      places_(std::move(places)),
      sockets_(places_.size()),
      gate_(
          std::move(listener), {.shared = shared_, .world_size = ranks()},
          [this](const Claims& claims) { return admit(claims); },
          [this](Admitted admitted) { enter(std::move(admitted)); }) {
  for (Rank to = 0; to < rank_; ++to) calls_.push_back({.to = to});
}

Verdict MeshBuilder::admit(const Claims& claims) {
  if (claims.to != rank_ || claims.from <= rank_) return Verdict::impossible;
  Socket& before = sockets_[static_cast<std::size_t>(claims.from)];
  // Its earlier connection may have broken before it had our verdict; then it calls again.
  if (before.valid() && has_ended(before)) before.close();
  return before.valid() ? Verdict::duplicate : Verdict::accepted;
}

void MeshBuilder::enter(Admitted admitted) {
  sockets_[static_cast<std::size_t>(admitted.claims.from)] = std::move(admitted.socket);
}

bool MeshBuilder::complete() const {
  for (Rank other = 0; other < ranks(); ++other) {
    if (other != rank_ && !connected(other)) return false;
  }
  return true;
}

Status MeshBuilder::run(Deadline deadline, Duration timeout) {
  PollSet set;
  while (!complete()) {
    if (deadline.passed()) {
      const double seconds = std::chrono::duration<double>(timeout).count();
      return failure(ErrorKind::timeout,
                     fmt::format("rank {} has no connection with {} within {:.3g} s, though all "
                                 "have joined: does a firewall, or the choice of interface, keep "
                                 "them apart?",
                                 rank_, missing_ranks(), seconds));
    }
    set.clear();
    set.wait(watch(set, deadline));
    if (Status called = advance_calls(set); !called) return called;
    if (Status accepted = gate_.advance(set); !accepted) return accepted;
  }
  return {};
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
  return Deadline(next);
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
  std::erase_if(calls_, [this](const Call& call) { return connected(call.to); });
  return {};
}

Status MeshBuilder::begin(Call& call) {
  const RankPlace& place = places_[static_cast<std::size_t>(call.to)];
  const SocketAddress own = places_[static_cast<std::size_t>(rank_)].address.with_port(0);
  const bool same_family = own.family() == place.address.family();
  Result<Socket> socket = start_connect(place.address, same_family ? own : SocketAddress());
  if (!socket) return tl::unexpected<Error>(socket.error());
  call.handshake = std::make_unique<ClientHandshake>(
      std::move(*socket), place.describe(call.to), shared_,
      Claims{.from = rank_, .to = call.to, .world_size = ranks()});
  return {};
}

Status MeshBuilder::move_on(Call& call) {
  const Status moved = call.handshake->advance();
  if (moved) {
    if (call.handshake->done()) {
      sockets_[static_cast<std::size_t>(call.to)] = call.handshake->take_socket();
    }
    return {};
  }
  // Each rank listens until it is connected with all: one that cannot be reached has gone, but one
  // that hangs up in the middle may have been short of something.
  if (moved.error().kind != ErrorKind::disconnected) return moved;
  if (!call.handshake->connected()) {
    return failure(ErrorKind::disconnected,
                   moved.error().message +
                       ": it had joined, so it has ended since, or a firewall "
                       "is in between");
  }
  call.handshake.reset();
  call.not_before = SteadyClock().now() + kBeforeNextAttempt;
  return {};
}

std::string MeshBuilder::missing_ranks() const {
  std::vector<std::string> names;
  for (Rank other = 0; other < ranks(); ++other) {
    if (other == rank_ || connected(other)) continue;
    names.push_back(places_[static_cast<std::size_t>(other)].describe(other));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gradwire

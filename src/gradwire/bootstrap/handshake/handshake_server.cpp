#include "gradwire/bootstrap/handshake/handshake_server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/net/descriptors.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum accepts in one call, so that a flood of new connections does not delay pending ones.
constexpr int kAcceptsAtOnce = 64;

/// Pause of a listener that cannot accept: poll(2) would report it again immediately.
constexpr Duration kPause = std::chrono::milliseconds(50);

/// Unauthenticated peers may hold 1/8 of this process's descriptors.
constexpr std::size_t kUnauthenticatedPart = 8;

}  // namespace

HandshakeServer::HandshakeServer(const Clock& clock, Listeners listeners, Options options,
                                 ServerHandshake::Admit admit,
                                 std::function<void(AuthenticatedConnection)> on_connection)
    : clock_(clock),
      options_(std::move(options)),
      admit_(std::move(admit)),
      on_connection_(std::move(on_connection)) {
  options_.max_unauthenticated =
      std::min(options_.max_unauthenticated, net::part_of_descriptors(kUnauthenticatedPart));
  for (std::unique_ptr<Listener>& listener : listeners)
    listeners_.push_back({.listener = std::move(listener)});
}

net::Deadline HandshakeServer::watch(net::PollSet& set, net::Deadline deadline) {
  const Time now = clock_.now();
  Time next = deadline.at();
  for (ListenerState& state : listeners_) {
    state.poll_index.reset();
    if (state.paused_until <= now) {
      state.poll_index = set.add(state.listener->socket(), POLLIN);
    } else {
      next = std::min(next, state.paused_until);
    }
  }
  for (Pending& pending : pending_) {
    pending.poll_index = set.add(pending.handshake->socket(), pending.handshake->wanted_events());
  }
  if (!pending_.empty()) next = std::min(next, pending_.front().deadline.at());
  return net::Deadline(clock_, next);
}

Status HandshakeServer::advance(const net::PollSet& set) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool idle = set.returned_events(it->poll_index) == 0 && !it->deadline.passed();
    it = idle || advance_handshake(*it) ? std::next(it) : pending_.erase(it);
  }
  for (ListenerState& state : listeners_) {
    if (!state.poll_index || set.returned_events(*state.poll_index) == 0) continue;
    GRADWIRE_RETURN_IF_ERROR(accept_all(state));
  }
  return {};
}

Status HandshakeServer::accept_all(ListenerState& state) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Result<std::optional<net::Accepted>> accepted = state.listener->accept();
    if (!accepted) {
      if (!state.listener->socket().valid()) return tl::unexpected<Error>(accepted.error());
      return pause(state, accepted.error());
    }
    state.shortage_since.reset();
    if (!accepted->has_value()) return {};
    begin(std::move(**accepted));
  }
  return {};
}

/// Handles a shortage of descriptors, caused by unauthenticated peers or the rest of the process;
/// it may be temporary.
Status HandshakeServer::pause(ListenerState& state, const Error& error) {
  if (!pending_.empty()) {
    make_room();
    return {};
  }
  const Time now = clock_.now();
  if (!state.shortage_since) {
    state.shortage_since = now;
    refusals_.add(error.message + ": raise the limit of open files (ulimit -n)");
  }
  if (now - *state.shortage_since >= options_.shortage) return tl::unexpected<Error>(error);
  state.paused_until = now + kPause;
  return {};
}

void HandshakeServer::make_room() {
  auto dropped = std::ranges::find_if(
      pending_, [](const Pending& pending) { return !pending.handshake->has_hello(); });
  if (dropped == pending_.end()) dropped = pending_.begin();
  refusals_.add(dropped->from.to_string() + " was dropped: too many pending handshakes");
  pending_.erase(dropped);
}

void HandshakeServer::begin(net::Accepted accepted) {
  if (pending_.size() >= options_.max_unauthenticated + options_.expected) make_room();
  auto handshake =
      std::make_unique<ServerHandshake>(std::move(accepted.socket), accepted.from.to_string(),
                                        options_.credentials, options_.world_size, admit_);
  pending_.push_back({.handshake = std::move(handshake),
                      .deadline = net::Deadline::after(clock_, options_.timeout),
                      .from = accepted.from});
  if (!advance_handshake(pending_.back())) pending_.pop_back();
}

/// Returns false once the handshake has ended.
bool HandshakeServer::advance_handshake(Pending& pending) {
  const Status moved = pending.handshake->advance();
  if (!moved) {
    if (moved.error().kind != ErrorKind::aborted) refusals_.add(moved.error().message);
    return false;
  }
  if (pending.handshake->done()) {
    const Claims claims = pending.handshake->claims();
    const net::SessionKey key = pending.handshake->session_key();
    on_connection_({pending.handshake->take_socket(), claims, key});
    return false;
  }
  if (!pending.deadline.passed()) return true;
  refusals_.add(fmt::format("{} did not complete the handshake within {} ms",
                            pending.from.to_string(), net::milliseconds_of(options_.timeout)));
  return false;
}

}  // namespace gradwire::bootstrap

#include "gradwire/bootstrap/gate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/net/descriptors.h"

namespace gradwire {
namespace {

/// Maximum accepts in one call, so that a flood of new connections does not delay pending ones.
constexpr int kAcceptsAtOnce = 64;

/// Pause of a door that cannot accept: poll(2) would report it again immediately.
constexpr Duration kRest = std::chrono::milliseconds(50);

/// Unauthenticated peers may hold 1/8 of this process's descriptors.
constexpr std::size_t kPartForStrangers = 8;

}  // namespace

Gate::Gate(Doors doors, Options options, ServerHandshake::Admit admit,
           std::function<void(Admitted)> enter)
    : options_(std::move(options)), admit_(std::move(admit)), enter_(std::move(enter)) {
  options_.most_strangers =
      std::min(options_.most_strangers, part_of_descriptors(kPartForStrangers));
  for (std::unique_ptr<Door>& door : doors) entrances_.push_back({.door = std::move(door)});
}

Deadline Gate::watch(PollSet& set, Deadline deadline) {
  const Time now = SteadyClock().now();
  Time next = deadline.at();
  for (Entrance& entrance : entrances_) {
    entrance.place.reset();
    if (entrance.rests_until <= now) {
      entrance.place = set.add(entrance.door->socket(), POLLIN);
    } else {
      next = std::min(next, entrance.rests_until);
    }
  }
  for (Pending& pending : pending_) {
    pending.place = set.add(pending.handshake->socket(), pending.handshake->wanted_events());
  }
  if (!pending_.empty()) next = std::min(next, pending_.front().deadline.at());
  return Deadline(next);
}

Status Gate::advance(const PollSet& set) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool idle = set.happened(it->place) == 0 && !it->deadline.passed();
    it = idle || move_on(*it) ? std::next(it) : pending_.erase(it);
  }
  for (Entrance& entrance : entrances_) {
    if (!entrance.place || set.happened(*entrance.place) == 0) continue;
    if (Status accepted = accept_all(entrance); !accepted) return accepted;
  }
  return {};
}

Status Gate::accept_all(Entrance& entrance) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Result<std::optional<Accepted>> accepted = entrance.door->accept();
    if (!accepted) {
      if (!entrance.door->socket().valid()) return tl::unexpected<Error>(accepted.error());
      return rest(entrance, accepted.error());
    }
    entrance.short_since.reset();
    if (!accepted->has_value()) return {};
    begin(std::move(**accepted));
  }
  return {};
}

/// Handles a shortage of descriptors, caused by unauthenticated peers or the rest of the process;
/// it may be temporary.
Status Gate::rest(Entrance& entrance, const Error& error) {
  if (!pending_.empty()) {
    make_room();
    return {};
  }
  const Time now = SteadyClock().now();
  if (!entrance.short_since) {
    entrance.short_since = now;
    refusals_.add(error.message + ": raise the limit of open files (ulimit -n)");
  }
  if (now - *entrance.short_since >= options_.shortage) return tl::unexpected<Error>(error);
  entrance.rests_until = now + kRest;
  return {};
}

void Gate::make_room() {
  auto goes = std::ranges::find_if(
      pending_, [](const Pending& pending) { return !pending.handshake->has_hello(); });
  if (goes == pending_.end()) goes = pending_.begin();
  refusals_.add(goes->from.to_string() + " was dropped: too many pending handshakes");
  pending_.erase(goes);
}

void Gate::begin(Accepted accepted) {
  if (pending_.size() >= options_.most_strangers + options_.expected) make_room();
  auto handshake =
      std::make_unique<ServerHandshake>(std::move(accepted.socket), accepted.from.to_string(),
                                        options_.shared, options_.world_size, admit_);
  pending_.push_back({.handshake = std::move(handshake),
                      .deadline = Deadline::after(options_.timeout),
                      .from = accepted.from});
  if (!move_on(pending_.back())) pending_.pop_back();
}

/// Returns false once the handshake has ended.
bool Gate::move_on(Pending& pending) {
  const Status moved = pending.handshake->advance();
  if (!moved) {
    if (moved.error().kind != ErrorKind::aborted) refusals_.add(moved.error().message);
    return false;
  }
  if (pending.handshake->done()) {
    const Claims claims = pending.handshake->claims();
    const SessionKey key = pending.handshake->session_key();
    enter_({pending.handshake->take_socket(), claims, key});
    return false;
  }
  if (!pending.deadline.passed()) return true;
  refusals_.add(fmt::format("{} did not complete the handshake within {} ms",
                            pending.from.to_string(), milliseconds_of(options_.timeout)));
  return false;
}

}  // namespace gradwire

#include "gradwire/net/gate.h"

#include <utility>

#include <fmt/format.h>

namespace gradwire {
namespace {

/// In one go, so that a flood of strangers does not keep those already here waiting.
constexpr int kAcceptsAtOnce = 64;

}  // namespace

Gate::Gate(Doors doors, Options options, ServerHandshake::Admit admit,
           std::function<void(Admitted)> enter)
    : options_(std::move(options)), admit_(std::move(admit)), enter_(std::move(enter)) {
  for (std::unique_ptr<Door>& door : doors) entrances_.push_back({.door = std::move(door)});
}

Deadline Gate::watch(PollSet& set, Deadline deadline) {
  for (Entrance& entrance : entrances_) {
    entrance.place = set.add(entrance.door->socket(), POLLIN);
  }
  for (Pending& pending : pending_) {
    pending.place = set.add(pending.handshake->socket(), pending.handshake->wanted_events());
  }
  if (pending_.empty()) return deadline;
  return Deadline(std::min(deadline.at(), pending_.front().deadline.at()));
}

Status Gate::advance(const PollSet& set) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool idle = set.happened(it->place) == 0 && !it->deadline.passed();
    it = idle || move_on(*it) ? std::next(it) : pending_.erase(it);
  }
  for (Entrance& entrance : entrances_) {
    if (set.happened(entrance.place) == 0) continue;
    if (Status accepted = accept_all(*entrance.door); !accepted) return accepted;
  }
  return {};
}

Status Gate::accept_all(Door& door) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Result<std::optional<Accepted>> accepted = door.accept();
    if (!accepted) {
      const bool for_good = pending_.empty() || !door.socket().valid();
      if (for_good) return tl::unexpected<Error>(accepted.error());
      // Out of descriptors, perhaps because of strangers: the oldest makes room.
      pending_.pop_front();
      return {};
    }
    if (!accepted->has_value()) return {};
    begin(std::move(**accepted));
  }
  return {};
}

void Gate::begin(Accepted accepted) {
  const std::size_t most = options_.most_strangers + static_cast<std::size_t>(options_.world_size);
  if (pending_.size() >= most) {
    refusals_.add(pending_.front().from.to_string() + " was the slowest of too many");
    pending_.pop_front();
  }
  auto handshake =
      std::make_unique<ServerHandshake>(std::move(accepted.socket), accepted.from.to_string(),
                                        options_.shared, options_.world_size, admit_);
  pending_.push_back({.handshake = std::move(handshake),
                      .deadline = Deadline::after(options_.timeout),
                      .from = accepted.from});
  if (!move_on(pending_.back())) pending_.pop_back();
}

/// False once there is nothing more to do with it.
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
  refusals_.add(fmt::format("{} did not prove who it is within {} ms", pending.from.to_string(),
                            milliseconds_of(options_.timeout)));
  return false;
}

}  // namespace gradwire

#include "gradwire/engine/links/rail_failover.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/engine/links/rail_notice.h"

namespace gradwire::engine {
namespace {

constexpr Duration kCheckEvery = std::chrono::milliseconds(50);

/// Interval of this check if only failed rails are watched.
constexpr Duration kCheckFailedEvery = std::chrono::milliseconds(250);

/// Time without progress after which the peer is pinged over the other rails.
constexpr Duration kPingAfter = std::chrono::milliseconds(100);

/// Time without progress after which a rail fails, if the peer has answered on another rail. A
/// healthy rail may lose a packet and its retransmission: TCP waits at least 200 ms each time (tail
/// loss probe and retransmission timer).
constexpr Duration kFailAfter = std::chrono::milliseconds(700);

/// A peer that answers this late on every rail was paused. The value must not be less: late packets
/// cause gaps of 200 ms, and each assumed pause postpones the failure of a dead rail.
constexpr Duration kPause = kFailAfter / 2;

/// Back-off before a failed rail is probed. It doubles with each failure of a rail that had not
/// been in use for kSteady, because each failure delays the frames on the rail by kFailAfter.
constexpr Duration kProbeAfterMin = std::chrono::seconds(1);
constexpr Duration kProbeAfterMax = std::chrono::seconds(60);
constexpr Duration kSteady = std::chrono::seconds(60);

/// Failures (or recoveries) of one rail to several peers within this time have one cause, and are
/// reported once.
constexpr Duration kSameCause = std::chrono::seconds(2);

bool is_new_cause(std::map<int, Time>& reported, int rail, Time now) {
  const auto [last, first] = reported.try_emplace(rail, now);
  return now - std::exchange(last->second, now) >= kSameCause || first;
}

void start_failure(Rail& rail, const Error& error, Time now) {
  rail.failed = true;
  rail.why = error;
  ++rail.generation;
  rail.peer_knows = rail.drained = rail.resent = rail.probed = rail.peer_probed = false;
  const bool steady = now - rail.in_use_since >= kSteady;
  rail.backoff =
      steady || rail.generation == 1 ? kProbeAfterMin : std::min(2 * rail.backoff, kProbeAfterMax);
  rail.probe_at = now + rail.backoff;
}

}  // namespace

RailFailover::RailFailover(Rank rank, const ExecutorState& state, Peers& peers,
                           net::Transport& transport, Host& host, Warning warn)
    : rank_(rank),
      state_(state),
      peers_(peers),
      transport_(transport),
      host_(host),
      warn_(std::move(warn)) {}

Rail& RailFailover::rail(net::StreamId stream) const {
  return *peer(stream.peer).rails[static_cast<std::size_t>(stream.rail)];
}

void RailFailover::on_broken(Rail& rail, const Error& why) {
  rail.broken = true;
  if (rail.failed) {
    peer(rail.stream.peer).outbox.stop(rail.stream.rail);
  } else {
    fail_over(rail, why);
  }
}

void RailFailover::fail_over(Rail& rail, const Error& why) {
  if (rail.failed) return;
  start_failure(rail, why, state_.now);
  Peer& from = peer(rail.stream.peer);
  if (!from.outbox.stop(rail.stream.rail) && !resume_probed(from)) {
    host_.on_peer_lost(from.rank, why);
    return;
  }
  // A peer that leaves needs nothing more of this rank, and has sent all that this rank needs.
  if (rail.goodbye || is_over(from.rank)) {
    rail.closed = true;
    if (state_.leaving) host_.send_goodbye_on(rail);
    return;
  }
  // Notices about other rails may be lost with this one, and its own failover may wait for them.
  for (const auto& each : from.rails) {
    if (each->failed && !each->goodbye) send_notice(*each);
  }
}

void RailFailover::send_notice(const Rail& rail) {
  Outbox& outbox = peer(rail.stream.peer).outbox;
  const RailNotice notice{
      .kind = rail.drained ? RailNotice::Kind::drained : RailNotice::Kind::failed,
      .rail = static_cast<std::uint32_t>(rail.stream.rail),
      .generation = rail.generation,
      .written_bytes = outbox.written(rail.stream.rail),
      .received_frames = rail.drained ? rail.received_frames : rail.inbox.frames()};
  outbox.queue_control({.type = net::FrameType::rail_notice}, encode(notice));
  host_.mark_dirty(rail.stream.peer);
}

Status RailFailover::on_notice(Rail& over, const net::FrameHeader& header) {
  if (is_over(over.stream.peer)) return {};
  const Result<RailNotice> notice =
      decode_rail_notice(ConstBytes(over.control).first(header.length));
  if (!notice) return tl::unexpected(notice.error());
  Peer& from = peer(over.stream.peer);
  if (notice->rail >= from.rails.size()) {
    return failure(ErrorKind::corrupted, "a notice about a rail that does not exist");
  }
  Rail& rail = *from.rails[notice->rail];
  if (notice->kind == RailNotice::Kind::suspect) {
    on_suspect(rail, *notice);
    return {};
  }
  const bool is_new = notice->generation == rail.generation + 1;
  const bool is_current = notice->generation == rail.generation && rail.failed;
  if (notice->generation > rail.generation + 1 || ((is_new || is_current) && &over == &rail)) {
    return failure(ErrorKind::corrupted, "an inconsistent notice about the failure of a rail");
  }
  if (is_new) {
    rail.failed = false;  // The peer resumed it before this side.
    fail_over(rail, {ErrorKind::disconnected, "the peer reported its failure"});
  }
  if (is_new || is_current) on_rail_failed(rail, *notice);
  return {};
}

void RailFailover::on_rail_failed(Rail& rail, const RailNotice& notice) {
  Peer& from = peer(rail.stream.peer);
  if (!std::exchange(rail.peer_knows, true)) {
    rail.peer_written = notice.written_bytes;
    draining_.push_back(rail.stream);  // Not here: the frame being read uses the same buffer.
  }
  if (notice.kind == RailNotice::Kind::failed || std::exchange(rail.resent, true)) return;
  report(rail);
  if (Status again = from.outbox.resend(rail.stream.rail, notice.received_frames); !again) {
    host_.fail({.error = {again.error().kind,
                          fmt::format("the connection to {} broke: {}",
                                      transport_.describe(rail.stream), again.error().message)},
                .peer = from.rank});
    return;
  }
  if (state_.leaving) host_.send_goodbye_on(rail);
  host_.mark_dirty(from.rank);
}

void RailFailover::on_suspect(Rail& rail, const RailNotice& notice) {
  if (rail.failed && notice.generation < rail.generation) {
    send_notice(rail);
  } else if (!rail.failed && notice.generation == rail.generation) {
    suspected_.push_back(rail.stream);  // Not here, for the same reason as in on_rail_failed().
  }
}

void RailFailover::settle() {
  while (!draining_.empty()) {
    const net::StreamId stream = draining_.back();
    draining_.pop_back();
    if (!is_over(stream.peer)) drain(rail(stream));
  }
  for (const net::StreamId stream : std::exchange(suspected_, {})) fail_if_silent(rail(stream));
}

/// Fails a rail that the peer suspects, unless bytes have arrived on it meanwhile: the notice may
/// be late, or this process may have been stopped, with unread bytes on the rail.
void RailFailover::fail_if_silent(Rail& rail) {
  if (rail.accepts_input()) host_.read_all(rail);
  const bool silent = state_.now - rail.last_received >= kPingAfter;
  if (is_over(rail.stream.peer) || rail.failed || !silent ||
      peer(rail.stream.peer).outbox.live_rails() == 1)
    return;
  fail_over(rail, {ErrorKind::disconnected, fmt::format("no progress on the link from {}",
                                                        transport_.describe(rail.stream))});
}

void RailFailover::on_answer(Peer& peer) const {
  if (!peer.pinged_at) return;
  // A pause of the whole peer is not a fault of a rail.
  if (state_.now - *peer.pinged_at >= kPause) peer.resumed = state_.now;
  peer.pinged_at.reset();
}

/// Drains a rail to which the peer writes no more data: reads all arrived bytes and reports the
/// number of frames.
void RailFailover::drain(Rail& rail) {
  if (rail.accepts_input()) host_.read_all(rail);
  if (is_over(rail.stream.peer)) return;
  rail.drained = true;
  rail.received_frames = rail.inbox.frames();
  host_.on_drained(rail.stream);
  if (rail.closed || rail.broken) {
    rail.closed = true;
    transport_.close(rail.stream);
  } else if (rail.peer_written < rail.received_bytes) {
    host_.fail({.error = {ErrorKind::corrupted,
                          fmt::format("{} reports {} bytes written, but {} have arrived",
                                      transport_.describe(rail.stream), rail.peer_written,
                                      rail.received_bytes)},
                .peer = rail.stream.peer});
    return;
  } else {
    rail.stale_bytes = rail.peer_written - rail.received_bytes;
    rail.inbox = Inbox(transport_.needs_checksums(rail.stream));
  }
  send_notice(rail);
}

/// Probes a failed rail, and resumes it when the probes of both sides have arrived.
void RailFailover::recover(Peer& peer, Rail& rail) {
  const int index = rail.stream.rail;
  if (!rail.probed && rail.drained && rail.resent && state_.now >= rail.probe_at) {
    rail.probed = true;
    peer.outbox.probe(index, state_.now);
    host_.mark_dirty(peer.rank);
  } else if (rail.probed && rail.peer_probed && !peer.outbox.undelivered(index)) {
    resume(rail);
  }
}

void RailFailover::resume(Rail& rail) {
  rail.failed = false;
  rail.in_use_since = rail.moved = rail.last_received = rail.checked = state_.now;
  Peer& to = peer(rail.stream.peer);
  to.outbox.resume(rail.stream.rail, state_.now);
  host_.on_resumed(rail.stream);
  host_.mark_dirty(to.rank);
  if (warn_ && is_new_cause(reported_back_, rail.stream.rail, state_.now)) {
    warn_(fmt::format("rail {} is back ({})", rail.stream.rail, transport_.describe(rail.stream)));
  }
}

/// Called when the last rail in use has failed. The peer may have resumed others before this side:
/// their probes have arrived here, only an acknowledgement is missing. Returns true if any rail was
/// resumed.
bool RailFailover::resume_probed(Peer& peer) {
  bool any = false;
  for (const auto& rail : peer.rails) {
    if (!rail->failed || !rail->probed || !rail->peer_probed || !rail->can_recover()) continue;
    resume(*rail);
    any = true;
  }
  return any;
}

/// Reports a failed rail, once for all peers: one cable carries the rails to many peers.
void RailFailover::report(const Rail& rail) {
  if (!is_new_cause(reported_failed_, rail.stream.rail, state_.now) || !warn_) return;
  const net::StreamId left{rail.stream.peer, peer(rail.stream.peer).outbox.first_rail()};
  warn_(fmt::format("rail {} is gone ({}); continuing with {}", rail.stream.rail, rail.why.message,
                    transport_.describe(left)));
}

void RailFailover::watch(const Peer& peer) {
  if (next_check_ <= state_.now + kCheckEvery || is_over(peer.rank)) return;
  for (const auto& rail : peer.rails) {
    if (peer.outbox.undelivered(rail->stream.rail) &&
        (!rail->failed || (rail->probed && rail->can_recover()))) {
      next_check_ = state_.now + kCheckEvery;
    } else if (rail->failed && rail->can_recover() && !state_.leaving) {
      next_check_ = std::min(next_check_, state_.now + kCheckFailedEvery);
    }
  }
}

void RailFailover::check(Time now) {
  next_check_ = Time::max();
  for (const auto& peer : peers_) {
    if (state_.error) return;
    if (!peer || peer->closed || peer->error || !peer->has_rails()) continue;
    peer->outbox.confirm();
    for (const auto& rail : peer->rails) {
      if (!rail->failed) {
        check_rail(*peer, *rail, now);
      } else if (rail->can_recover() && !state_.leaving) {
        recover(*peer, *rail);
      }
    }
    host_.mark_dirty(peer->rank);  // A rail that became slower leaves more segments to the others.
    watch(*peer);
  }
}

void RailFailover::check_rail(Peer& peer, Rail& rail, Time now) {
  const Outbox& outbox = peer.outbox;
  const int index = rail.stream.rail;
  const std::size_t delivered = outbox.delivered(index);
  if (std::exchange(rail.delivered, delivered) != delivered || !outbox.undelivered(index) ||
      now - rail.checked > 2 * kCheckEvery) {
    rail.moved = now;
  }
  rail.checked = now;
  if (now - rail.moved < kPingAfter || outbox.live_rails() == 1) return;
  // After a pause the peer needs time to read what has arrived, one rail after the other.
  const Time since = std::max(rail.moved, peer.resumed);
  const Time asked = since + kPingAfter;
  if (!peer.pinged_at) peer.pinged_at = now;
  bool heard = false;
  for (const auto& other : peer.rails) {
    if (other->failed || other.get() == &rail) continue;
    heard = heard || other->last_received > asked;
    peer.outbox.queue_control_on(other->stream.rail, {.type = net::FrameType::ping, .message = 1});
    host_.mark_dirty(peer.rank);
  }
  if (!heard || now - since < kFailAfter) return;
  if (rank_ < peer.rank) {
    fail_over(rail, {ErrorKind::disconnected, fmt::format("no progress on the link to {}",
                                                          transport_.describe(rail.stream))});
  } else {
    suspect(peer, rail);
  }
}

/// Asks the lower rank to fail a rail without progress. The lower rank decides for both: if each
/// side failed a different rail, none might be left.
void RailFailover::suspect(Peer& peer, const Rail& rail) {
  const auto other = std::ranges::find_if(
      peer.rails, [&](const auto& r) { return !r->failed && r.get() != &rail; });
  if (other == peer.rails.end()) return;
  const RailNotice notice{.kind = RailNotice::Kind::suspect,
                          .rail = static_cast<std::uint32_t>(rail.stream.rail),
                          .generation = rail.generation};
  peer.outbox.queue_control_on((*other)->stream.rail, {.type = net::FrameType::rail_notice},
                               encode(notice));
  host_.mark_dirty(peer.rank);
}

}  // namespace gradwire::engine

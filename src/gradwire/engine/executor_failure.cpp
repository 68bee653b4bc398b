#include <algorithm>
#include <span>

#include "gradwire/engine/executor.h"
#include "gradwire/engine/failure_text.h"
#include "gradwire/net/abort_message.h"
#include "gradwire/net/frame.h"

/// The executor's failure, shutdown and timers.
namespace gradwire::engine {

void Executor::abort(Error error) {
  fail_because_of(rank_, error.kind, error.message);
  flush_dirty();
}

void Executor::send_goodbye(const Error& why, const std::string& failure) {
  if (!failure.empty() && !state_.error && options_.on_failure) options_.on_failure(rank_, failure);
  state_.failure = failure.substr(0, net::kMaxControlPayload);
  for (const auto& flight : in_flight_.remove_unanswered_receives()) {
    const Operation& operation = flight->operation;
    peer(flight->pair).outbox.forget(*flight);  // Its announcement may still be pending.
    operation.request().completion->failed(failure_of(operation, why));
  }
  for (const OperationRequest& request : std::exchange(unmatched_, {})) {
    request.completion->failed(failure_of(request, why));
  }
  for (const auto& peer : peers_) {
    if (!peer || state_.error) continue;
    peer->outbox.flush_announcements();
    for (const auto& rail : peer->rails) send_goodbye_on(*rail);
    mark_dirty(peer->rank);
  }
  state_.leaving = true;
  flush_dirty();
}

/// The goodbye is the last frame of a rail. For a failed rail it follows the retransmission over
/// another rail, unless the peer leaves too and does not need the retransmission.
void Executor::send_goodbye_on(const Rail& rail) {
  Outbox& outbox = peer(rail.stream.peer).outbox;
  const net::FrameHeader goodbye{.type = net::FrameType::goodbye,
                                 .message = static_cast<std::uint32_t>(rail.stream.rail)};
  const ConstBytes failure = std::as_bytes(std::span(state_.failure));
  if (!rail.failed) {
    outbox.queue_control_on(rail.stream.rail, goodbye, failure);
  } else if (rail.resent || rail.goodbye) {
    outbox.queue_control(goodbye, failure);
  }
}

void Executor::fail(ErrorKind kind, const std::string& message) {
  fail(kind, message, rank_);
}

void Executor::fail_because_of(Rank cause, ErrorKind kind, const std::string& message) {
  if (!state_.error && options_.on_failure) options_.on_failure(cause, message);
  fail(kind, message);
}

/// The first error fails all operations. Lent memory is not accessed afterwards.
void Executor::fail(ErrorKind kind, const std::string& message, Rank origin) {
  if (state_.error) return;
  state_.error = Error{kind, message};
  woken_.clear();
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->outbox.drop_messages();
    for (const auto& rail : peer->rails) rail->inbox.abandon();
  }
  early_.clear();
  self_messages_.clear();
  held_ = 0;
  send_abort(*state_.error, origin);
  const std::vector<std::unique_ptr<InFlightOperation>> failed = in_flight_.remove_all();
  const std::deque<OperationRequest> unmatched = std::exchange(unmatched_, {});
  for (const auto& flight : failed) {
    const OperationRequest& request = flight->operation.request();
    request.completion->failed(failure_of(flight->operation, *state_.error));
  }
  for (const OperationRequest& request : unmatched) {
    request.completion->failed(failure_of(request, *state_.error));
  }
}

void Executor::send_abort(const Error& error, Rank origin) {
  const std::vector<std::byte> payload = net::encode_abort({error.kind, origin, error.message});
  for (const auto& peer : peers_) {
    if (!peer || peer->closed) continue;
    for (const auto& rail : peer->rails) {
      if (rail->failed) continue;
      peer->outbox.queue_control_on(rail->stream.rail, {.type = net::FrameType::abort}, payload);
    }
    mark_dirty(peer->rank);
  }
}

Time Executor::next_timer() const {
  if (!unread_.empty() || !unwritten_.empty()) return state_.now;
  return std::min(
      {liveness_.next_check(), earliest_deadline_, announce_at_, failover_.next_check()});
}

void Executor::on_timer(Time now) {
  state_.now = now;
  resume_deferred();
  if (now >= announce_at_) flush_all_announcements();
  if (now >= failover_.next_check()) failover_.check(now);
  if (now >= earliest_deadline_) check_deadlines(now);
  if (now >= liveness_.next_check()) check_silence(now);
  failover_.settle();
  flush_dirty();
}

/// Sends announcements that could not be piggybacked in time.
void Executor::flush_all_announcements() {
  announce_at_ = Time::max();
  for (const auto& peer : peers_) {
    if (!peer || !peer->outbox.has_pending_announcements()) continue;
    peer->outbox.flush_announcements();
    mark_dirty(peer->rank);
  }
}

void Executor::check_deadlines(Time now) {
  earliest_deadline_ = Time::max();
  for (const auto& flight : in_flight_.all()) {
    const Time deadline = flight->operation.request().deadline;
    if (now < deadline) {
      earliest_deadline_ = std::min(earliest_deadline_, deadline);
      continue;
    }
    fail(ErrorKind::timeout, timeout_text(*flight, transport_));
    return;
  }
  for (const OperationRequest& request : unmatched_) {
    earliest_deadline_ = std::min(earliest_deadline_, request.deadline);
    if (now < request.deadline) continue;
    fail(ErrorKind::timeout, receive_timeout_text(request));
    return;
  }
}

void Executor::check_silence(Time now) {
  liveness_.check(now);
  if (state_.error) return;
  for (const auto& peer : peers_) {
    if (!peer || peer->closed || peer->departed) continue;
    if (liveness_.is_dead(peer->rank, now)) {
      fail_because_of(
          peer->rank, ErrorKind::disconnected,
          silence_text(transport_.describe({peer->rank, 0}), options_.dead_peer_timeout));
      return;
    }
    if (!liveness_.needs_ping(peer->rank, now)) continue;
    peer->outbox.queue_control({.type = net::FrameType::ping});
    mark_dirty(peer->rank);
  }
}

}  // namespace gradwire::engine

#include "gradwire/engine/executor.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/engine/failure_text.h"

namespace gradwire::engine {
namespace {

/// Maximum delay of an announcement that waits to be piggybacked. Long compared with a small
/// operation, so that it is rarely sent alone. Short for the user, because a mismatch between ranks
/// that send no data is detected only after it.
constexpr Duration kAnnouncementDelay = std::chrono::milliseconds(10);

/// Maximum announcements pending per peer.
constexpr std::size_t kMaxPendingAnnouncements = 64;

}  // namespace

Executor::Executor(Rank rank, int ranks, const ExecutorOptions& options, net::Transport& transport,
                   Time now)
    : rank_(rank),
      options_(options),
      transport_(transport),
      state_{.now = now},
      in_flight_(rank),
      early_(ranks, options.limits.eager_credit),
      liveness_(ranks, options.dead_peer_timeout, now),
      failover_(rank, state_, peers_, in_flight_, early_, transport, *this, options.on_warning),
      receive_buffer_(std::make_unique_for_overwrite<std::byte[]>(options.receive_buffer_bytes)) {
  GRADWIRE_CHECK(options.limits.segment_bytes % 8 == 0 && options.limits.segment_bytes > 0);
  GRADWIRE_CHECK(options.limits.segment_bytes <= net::kMaxDataPayload);
  GRADWIRE_CHECK(options.receive_buffer_bytes > 0);
  for (Rank r = 0; r < ranks; ++r) {
    peers_.push_back(r == rank ? nullptr : std::make_unique<Peer>(r, options.limits, transport));
  }
}

Executor::~Executor() = default;

void Executor::post(OperationRequest request, Time now) {
  state_.now = now;
  start(std::move(request));
  flush_dirty();
}

void Executor::post(std::vector<OperationRequest> requests, Time now) {
  state_.now = now;
  for (OperationRequest& request : requests) start(std::move(request));
  flush_dirty();
}

void Executor::start(OperationRequest request) {
  if (state_.error) {
    request.completion->failed(after_failure(*state_.error));
    return;
  }
  request.deadline = after(state_.now, request.timeout);
  earliest_deadline_ = std::min(earliest_deadline_, request.deadline);
  if (request.sends_to_self) {
    self_messages_.add(request, early_.next_arrival());
    request.completion->succeeded();
    match_receives();
  } else if (!request.program) {
    unmatched_.push_back(std::move(request));
    match_receives();
  } else {
    launch(std::move(request));
  }
  check_departed();
}

void Executor::launch(OperationRequest request) {
  InFlightOperation& flight = in_flight_.add(std::move(request));
  if (flight.is_barrier() && in_flight_.has_earlier_in_lane(flight)) {
    flight.held = true;
    ++held_;
  }
  announce(flight);
  flight.operation.start(woken_);
  route(flight);
  replay(flight);
}

void Executor::announce(InFlightOperation& flight) {
  // Start with the next higher rank: otherwise all ranks would send to the lowest rank first.
  const auto& exchanges = flight.operation.program().exchanges;
  const auto next =
      std::ranges::upper_bound(exchanges, rank_, {}, &CompiledProgram::Exchange::peer);
  const auto begin = static_cast<std::size_t>(next - exchanges.begin());
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const std::size_t exchange = (begin + i) % exchanges.size();
    Peer& to = peer(exchanges[exchange].peer);
    if (to.departed) continue;
    to.outbox.announce(flight, exchange);
    if (needs_immediate_announcement(flight, exchanges[exchange])) {
      to.outbox.flush_announcements();
      mark_dirty(to.rank);
    } else {
      announce_at_ = std::min(announce_at_, state_.now + kAnnouncementDelay);
      announce_if_credit_low(to);
    }
  }
}

/// Returns true if the peer needs the announcement before it sends (clear-to-send), or before it
/// can post its receive.
bool Executor::needs_immediate_announcement(const InFlightOperation& flight,
                                            const CompiledProgram::Exchange& exchange) const {
  const auto is_large = [&](schedule::OpIndex op) {
    return flight.operation.size(op) > options_.limits.eager_bytes;
  };
  return std::ranges::any_of(exchange.receives, is_large) ||
         (flight.pair >= 0 && std::ranges::any_of(exchange.sends, is_large));
}

/// A peer's eager credit bounds the small messages it sends for operations that this rank has not
/// announced. Sends the pending announcements before the peer can run out of credit. (The peer
/// waits if the next message, of at most eager_bytes, exceeds its credit.)
void Executor::announce_if_credit_low(Peer& to) {
  const OutboxLimits& limits = options_.limits;
  const std::size_t most =
      std::min(limits.eager_credit / 2,
               limits.eager_credit - std::min(limits.eager_bytes, limits.eager_credit));
  const std::size_t bytes = to.outbox.unannounced_bytes() + early_.held_bytes(to.rank);
  if (!to.outbox.has_pending_announcements() ||
      (bytes <= most && to.outbox.pending_announcements() < kMaxPendingAnnouncements))
    return;
  to.outbox.flush_announcements();
  mark_dirty(to.rank);
}

/// Handles the frames of the operation that arrived before it was posted.
void Executor::replay(InFlightOperation& flight) {
  const OperationKey key = flight.operation.key();
  const Rank pair = flight.pair;
  const EarlyArrivals::Operation early = early_.take(key, pair);
  for (const EarlyArrivals::Announcement& announcement : early.announcements) {
    if (!accept_announcement(flight, announcement.peer, announcement.fingerprint)) return;
  }
  finish_if_complete(flight);
  for (const EarlyArrivals::Piece& piece : early.pieces) {
    InFlightOperation* still = in_flight_.find(key, piece.peer);
    if (still == nullptr) return;
    const Result<PayloadSink> sink =
        resolve_sink(*still, piece.peer, piece.header, !peer(piece.peer).has_rails());
    if (!sink) {
      fail(sink.error().kind, sink.error().message);
      return;
    }
    write_payload(*sink, 0, piece.payload);
    advance(*still,
            still->operation.program().exchange_with(piece.peer)->receives[piece.header.message],
            piece.header.offset, piece.header.offset + piece.payload.size());
  }
}

bool Executor::accept_announcement(InFlightOperation& flight, Rank from,
                                   const Fingerprint& theirs) {
  const int index = flight.exchange_index(from);
  if (index < 0 || theirs.from_there() != flight.fingerprint_for(from)) {
    fail(ErrorKind::mismatch,
         mismatch_text(transport_.describe({from, 0}), from, theirs, rank_, flight));
    return false;
  }
  flight.peer_states[static_cast<std::size_t>(index)].announced = true;
  peer(from).outbox.announced(flight.operation.key());
  mark_dirty(from);
  return true;
}

/// Bytes of a message have been sent or received.
void Executor::advance(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
                       std::size_t end, const VerifiedPayload& payload) {
  const std::size_t done = flight.record_range(op, begin, end);
  if (done == flight.operation.done(op) && end > begin) return;  // Earlier bytes are missing.
  flight.operation.advance(op, done, woken_);
  route(flight, op, payload);
  finish_if_complete(flight);
}

/// Queues the sends of the flight that can proceed. `payload`: the bytes received by op `by` that
/// may have enabled them.
void Executor::route(InFlightOperation& flight, schedule::OpIndex by,
                     const VerifiedPayload& payload) {
  if (flight.held) {
    flight.held_sends.insert(flight.held_sends.end(), woken_.begin(), woken_.end());
    woken_.clear();
    return;
  }
  const CompiledProgram& program = flight.operation.program();
  for (schedule::OpIndex op : woken_) {
    // A send with other dependencies may have been modified by them: no checksum reuse.
    const auto before = program.dependencies(op);
    const bool is_unmodified = before.size() == 1 && before.front().op == by;
    const Rank to = program.program.ops[op].peer;
    peer(to).outbox.queue_message(flight, op, is_unmodified ? payload : VerifiedPayload{});
    mark_dirty(to);
  }
  woken_.clear();
}

void Executor::finish_if_complete(InFlightOperation& flight) {
  if (flight.held || !flight.operation.all_complete()) return;
  for (const CompiledProgram::Exchange& exchange : flight.operation.program().exchanges) {
    peer(exchange.peer).outbox.forget(flight);
  }
  const std::unique_ptr<InFlightOperation> finished = in_flight_.remove(flight);
  finished->operation.request().completion->succeeded();
  if (held_ > 0) release_barriers();
}

/// A barrier guarantees that all operations posted before it are complete on every rank. So this
/// rank takes part only when its own earlier operations are complete.
void Executor::release_barriers() {
  const auto may_go = [this](const auto& flight) {
    return flight->held && !in_flight_.has_earlier_in_lane(*flight);
  };
  while (held_ > 0) {
    const auto found = std::ranges::find_if(in_flight_.all(), may_go);
    if (found == in_flight_.all().end()) return;
    InFlightOperation& flight = **found;
    flight.held = false;
    --held_;
    woken_.swap(flight.held_sends);
    route(flight);
    finish_if_complete(flight);
  }
}

bool Executor::is_needed() const {
  return !std::ranges::all_of(in_flight_.all(),
                              [](const auto& flight) { return flight->is_unanswered_receive(); });
}

/// Matches the receives whose sender was not known when they were posted, oldest first, with
/// announced messages and those of this rank to itself.
void Executor::match_receives() {
  for (std::size_t i = 0; i < unmatched_.size() && !state_.error;) {
    const Rank from = first_sender(unmatched_[i]);
    if (from < 0) {
      ++i;
      continue;
    }
    OperationRequest receive = std::move(unmatched_[i]);
    unmatched_.erase(unmatched_.begin() + static_cast<std::ptrdiff_t>(i));
    if (from == rank_) {
      receive_from_self(receive);
    } else {
      receive_from(from, std::move(receive));
    }
  }
}

void Executor::receive_from(Rank peer, OperationRequest receive) {
  receive.program = receive.program_from(peer);
  const Rank from_in_group = receive.program->schedule.spec.root;
  receive.completion->resolved(from_in_group);
  receive.fingerprint.root = from_in_group;
  receive.fingerprint.set_algorithm(receive.program->schedule.name);
  launch(std::move(receive));
}

void Executor::receive_from_self(const OperationRequest& receive) {
  const SelfMessages::Message& message = *self_messages_.next(receive);
  Fingerprint expected = receive.fingerprint;
  expected.root = message.fingerprint.root;
  if (expected != message.fingerprint) {
    fail(ErrorKind::mismatch, self_mismatch_text(rank_, message.fingerprint, receive));
    receive.completion->failed(failure_of(receive, *state_.error));
    return;
  }
  std::ranges::copy(message.payload, receive.output);
  if (receive.program_from) receive.completion->resolved(message.fingerprint.root);
  receive.completion->succeeded();
  self_messages_.remove_next(receive);
}

/// Returns the rank whose message for this receive was announced first; -1 if there is none.
Rank Executor::first_sender(const OperationRequest& receive) const {
  const SelfMessages::Message* own = self_messages_.next(receive);
  Rank first = own == nullptr ? -1 : rank_;
  std::uint64_t earliest = own == nullptr ? 0 : own->arrival;
  if (!receive.program_from) return first;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    const auto at = early_.announced_at(in_flight_.next_from(peer->rank, receive), peer->rank);
    if (!at || (first >= 0 && *at > earliest)) continue;
    first = peer->rank;
    earliest = *at;
  }
  return first;
}

bool Executor::flushed() {
  return std::ranges::all_of(peers_, [](const auto& peer) {
    if (peer == nullptr || peer->closed) return true;
    peer->outbox.confirm();
    return peer->outbox.is_done() && std::ranges::none_of(peer->rails, [](const auto& rail) {
             return rail->failed && !rail->resent && !rail->goodbye;
           });
  });
}

Executor::Traffic Executor::traffic() const {
  Traffic traffic;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    traffic.payload_bytes += peer->outbox.payload_bytes();
    traffic.total_bytes += peer->outbox.total_bytes();
  }
  return traffic;
}

}  // namespace gradwire::engine

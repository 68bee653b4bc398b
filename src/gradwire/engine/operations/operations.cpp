#include "gradwire/engine/operations/operations.h"

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

Operations::Operations(Rank rank, int ranks, const Options& options, const ExecutorState& state,
                       Links& links, FailureHandler& failures)
    : rank_(rank),
      options_(options),
      state_(state),
      links_(links),
      failures_(failures),
      in_flight_(rank),
      early_(ranks, options.limits.eager_credit) {}

void Operations::post(OperationRequest request) {
  if (state_.error) {
    request.completion->failed(after_failure(*state_.error));
    return;
  }
  if (state_.leaving) {  // Nothing drives it any more.
    request.completion->failed({ErrorKind::aborted, "the communicator is closed"});
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

void Operations::launch(OperationRequest request) {
  if (options_.domain == FailureDomain::pair) {
    GRADWIRE_CHECK(request.tag >= 0);
    const Peer& peer = links_.peer(request.program->exchanges.front().peer);
    if (peer.error) return request.completion->failed(after_failure(peer.rank, *peer.error));
  }
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

void Operations::announce(InFlightOperation& flight) {
  // Start with the next higher rank: otherwise all ranks would send to the lowest rank first.
  const auto& exchanges = flight.operation.program().exchanges;
  const auto next =
      std::ranges::upper_bound(exchanges, rank_, {}, &CompiledProgram::Exchange::peer);
  const auto begin = static_cast<std::size_t>(next - exchanges.begin());
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const std::size_t exchange = (begin + i) % exchanges.size();
    Peer& to = links_.peer(exchanges[exchange].peer);
    if (to.departed) continue;
    to.outbox.announce(flight, exchange);
    if (needs_immediate_announcement(flight, exchanges[exchange])) {
      to.outbox.flush_announcements();
      links_.mark_dirty(to.rank);
    } else {
      announce_at_ = std::min(announce_at_, state_.now + kAnnouncementDelay);
      announce_if_credit_low(to);
    }
  }
}

/// Returns true if the peer needs the announcement before it sends (clear-to-send), or before it
/// can post its receive.
bool Operations::needs_immediate_announcement(const InFlightOperation& flight,
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
void Operations::announce_if_credit_low(Peer& to) {
  const OutboxLimits& limits = options_.limits;
  const std::size_t most =
      std::min(limits.eager_credit / 2,
               limits.eager_credit - std::min(limits.eager_bytes, limits.eager_credit));
  const std::size_t bytes = to.outbox.unannounced_bytes() + early_.held_bytes(to.rank);
  if (!to.outbox.has_pending_announcements() ||
      (bytes <= most && to.outbox.pending_announcements() < kMaxPendingAnnouncements))
    return;
  to.outbox.flush_announcements();
  links_.mark_dirty(to.rank);
}

/// Handles the frames of the operation that arrived before it was posted.
void Operations::replay(InFlightOperation& flight) {
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
        resolve_sink(*still, piece.peer, piece.header, !links_.peer(piece.peer).has_rails());
    if (!sink) {
      return failures_.fail({.error = sink.error(), .peer = piece.peer});
    }
    write_payload(*sink, 0, piece.payload);
    advance(*still,
            still->operation.program().exchange_with(piece.peer)->receives[piece.header.message],
            piece.header.offset, piece.header.offset + piece.payload.size());
  }
}

bool Operations::accept_announcement(InFlightOperation& flight, Rank from,
                                     const Fingerprint& theirs) {
  const int index = flight.exchange_index(from);
  if (index < 0 || theirs.from_there() != flight.fingerprint_for(from)) {
    failures_.fail(
        {.error = {ErrorKind::mismatch, mismatch_text(links_.transport().describe({from, 0}), from,
                                                      theirs, rank_, flight)},
         .peer = from});
    return false;
  }
  flight.peer_states[static_cast<std::size_t>(index)].announced = true;
  links_.peer(from).outbox.announced(flight.operation.key());
  links_.mark_dirty(from);
  return true;
}

/// Bytes of a message have been sent or received.
void Operations::advance(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
                         std::size_t end, const VerifiedPayload& payload) {
  const std::size_t done = flight.record_range(op, begin, end);
  if (done == flight.operation.done(op) && end > begin) return;  // Earlier bytes are missing.
  flight.operation.advance(op, done, woken_);
  route(flight, op, payload);
  finish_if_complete(flight);
}

/// Queues the sends of the flight that can proceed. `payload`: the bytes received by op `by` that
/// may have enabled them.
void Operations::route(InFlightOperation& flight, schedule::OpIndex by,
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
    links_.peer(to).outbox.queue_message(flight, op, is_unmodified ? payload : VerifiedPayload{});
    links_.mark_dirty(to);
  }
  woken_.clear();
}

void Operations::finish_if_complete(InFlightOperation& flight) {
  if (flight.held || !flight.operation.all_complete()) return;
  for (const CompiledProgram::Exchange& exchange : flight.operation.program().exchanges) {
    links_.peer(exchange.peer).outbox.forget(flight);
  }
  const std::unique_ptr<InFlightOperation> finished = in_flight_.remove(flight);
  finished->operation.request().completion->succeeded();
  if (held_ > 0) release_barriers();
}

/// A barrier guarantees that all operations posted before it are complete on every rank. So this
/// rank takes part only when its own earlier operations are complete.
void Operations::release_barriers() {
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

bool Operations::is_needed() const {
  return !std::ranges::all_of(in_flight_.all(),
                              [](const auto& flight) { return flight->is_unanswered_receive(); });
}

/// Matches the receives whose sender was not known when they were posted, oldest first, with
/// announced messages and those of this rank to itself.
void Operations::match_receives() {
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

void Operations::receive_from(Rank peer, OperationRequest receive) {
  receive.program = receive.program_from(peer);
  const Rank from_in_group = receive.program->schedule.spec.root;
  receive.completion->resolved(from_in_group);
  receive.fingerprint.root = from_in_group;
  receive.fingerprint.set_algorithm(receive.program->schedule.name);
  launch(std::move(receive));
}

void Operations::receive_from_self(const OperationRequest& receive) {
  const SelfMessages::Message& message = *self_messages_.next(receive);
  Fingerprint expected = receive.fingerprint;
  expected.root = message.fingerprint.root;
  if (expected != message.fingerprint) {
    const Error error{ErrorKind::mismatch, self_mismatch_text(rank_, message.fingerprint, receive)};
    self_messages_.remove_next(receive);
    if (options_.domain == FailureDomain::job) failures_.fail({.error = error});
    return receive.completion->failed(failure_of(receive, error));
  }
  std::ranges::copy(message.payload, receive.output);
  if (receive.program_from) receive.completion->resolved(message.fingerprint.root);
  receive.completion->succeeded();
  self_messages_.remove_next(receive);
}

/// Returns the rank whose message for this receive was announced first; -1 if there is none.
Rank Operations::first_sender(const OperationRequest& receive) const {
  const SelfMessages::Message* own = self_messages_.next(receive);
  Rank first = own == nullptr ? -1 : rank_;
  std::uint64_t earliest = own == nullptr ? 0 : own->arrival;
  if (!receive.program_from) return first;
  for (const auto& peer : links_.peers()) {
    if (!peer || peer->error) continue;
    const auto at = early_.announced_at(in_flight_.next_from(peer->rank, receive), peer->rank);
    if (!at || (first >= 0 && *at > earliest)) continue;
    first = peer->rank;
    earliest = *at;
  }
  return first;
}

Result<PayloadSink> Operations::begin_data(Rail& rail, const net::FrameHeader& header) {
  const Rank from = rail.stream.peer;
  if (is_over(from) || state_.leaving) return PayloadSink{};
  const OperationKey key{header.channel, header.sequence, header.group};
  if (InFlightOperation* flight = in_flight_.find(key, from)) {
    const Peer& source = links_.peer(from);
    Result<PayloadSink> sink = resolve_sink(*flight, from, header, !source.has_rails());
    // A partial reduction cannot be undone if the rest of the frame is lost with its rail.
    const bool may_be_resent = source.outbox.live_rails() > 1 || rail.failed;
    if (sink) sink->whole = sink->operand != nullptr && may_be_resent;
    return sink;
  }
  if (in_flight_.was_posted(key, from)) {
    return failure(ErrorKind::corrupted, "data for a completed operation");
  }
  Result<std::byte*> room = early_.make_room(rail.stream, header);
  if (!room) return tl::unexpected(room.error());
  rail.early = true;
  announce_if_credit_low(links_.peer(from));
  return PayloadSink{.to = *room};
}

void Operations::complete_data(Rail& rail, const net::FrameHeader& header) {
  const Rank from = rail.stream.peer;
  if (is_over(from) || state_.leaving) return;
  const OperationKey key{header.channel, header.sequence, header.group};
  InFlightOperation* flight = in_flight_.find(key, from);
  if (rail.early) early_.complete(key, rail.stream);
  if (flight == nullptr) return;
  if (rail.early) {
    replay(*flight);  // The operation was posted while this frame was being received.
  } else {
    const schedule::OpIndex op =
        flight->operation.program().exchange_with(from)->receives[header.message];
    advance(*flight, op, header.offset, header.offset + header.length,
            forwardable_payload(rail, flight->operation, op, header));
  }
}

/// Returns the payload if it was stored unmodified and has a checksum; otherwise nothing.
VerifiedPayload Operations::forwardable_payload(const Rail& rail, const Operation& operation,
                                                schedule::OpIndex index,
                                                const net::FrameHeader& header) const {
  const schedule::Op& op = operation.program().program.ops[index];
  if (op.kind != schedule::OpKind::recv || op.postscale ||
      !links_.transport().needs_checksums(rail.stream))
    return {};
  return {{operation.destination(index) + header.offset, header.length}, header.payload_checksum};
}

Status Operations::on_announcement(Rail& rail, const net::FrameHeader& header) {
  const Rank from = rail.stream.peer;
  if (is_over(from) || state_.leaving) return {};
  const OperationKey key{header.channel, header.sequence, header.group};
  const Result<Fingerprint> theirs =
      decode_fingerprint(ConstBytes(rail.control).first(header.length));
  if (!theirs) return tl::unexpected(theirs.error());
  if (InFlightOperation* flight = in_flight_.find(key, from)) {
    accept_announcement(*flight, from, *theirs);
    return {};
  }
  if (!in_flight_.was_posted(key, from)) {
    GRADWIRE_RETURN_IF_ERROR(early_.add_announcement(key, from, *theirs));
    if (key.is_message()) match_receives();
    return {};
  }
  links_.peer(from).outbox.announced(key);  // Already complete here: the peer only receives.
  links_.mark_dirty(from);                  // Its announcement frees eager credit.
  return {};
}

void Operations::on_rail_resumed(net::StreamId stream) {
  Outbox& outbox = links_.peer(stream.peer).outbox;
  for (const auto& flight : in_flight_.all()) outbox.reannounce(*flight, stream.rail);
}

/// A rank may leave when it has done its part of all operations, including those that other ranks
/// post later: a broadcast's root need not wait for its leaves. A rank that still needs the
/// departed peer fails.
void Operations::check_departed() {
  Rank departed = -1;
  while (!state_.error) {
    const InFlightOperation* flight = first_with_departed(departed);
    if (flight == nullptr) break;
    failures_.fail({.error = {ErrorKind::disconnected,
                              departure_text(links_.transport().describe({departed, 0}),
                                             links_.peer(departed).failure, flight->operation)},
                    .peer = departed,
                    .cause = departed});
  }
  fail_receives_without_sender();
}

/// Returns an operation that needs a peer that has left, and sets `departed` to the peer.
const InFlightOperation* Operations::first_with_departed(Rank& departed) const {
  if (links_.gone() == 0) return nullptr;
  for (const auto& flight : in_flight_.all()) {
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      departed = exchange.peer;
      if (links_.peer(departed).departed && flight->operation.needs(departed)) return flight.get();
    }
  }
  return nullptr;
}

/// Fails the receives from any rank if no peer is left.
void Operations::fail_receives_without_sender() {
  const int others = static_cast<int>(links_.peers().size()) - 1;
  if (links_.gone() == 0 || links_.gone() < others) return;
  for (std::size_t i = 0; i < unmatched_.size() && !state_.error;) {
    if (!unmatched_[i].program_from) {
      ++i;
      continue;
    }
    fail_receive(i, {ErrorKind::disconnected, no_sender_text(unmatched_[i])});
  }
}

/// Fails a receive that no message matches: a failure of this rank alone.
void Operations::fail_receive(std::size_t index, const Error& error) {
  if (options_.domain == FailureDomain::job) return failures_.fail({.error = error});
  const OperationRequest receive = std::move(unmatched_[index]);
  unmatched_.erase(unmatched_.begin() + static_cast<std::ptrdiff_t>(index));
  receive.completion->failed(failure_of(receive, error));
}

void Operations::fail_all(const Error& error) {
  woken_.clear();
  early_.clear();
  self_messages_.clear();
  held_ = 0;
  const std::vector<std::unique_ptr<InFlightOperation>> failed = in_flight_.remove_all();
  const std::deque<OperationRequest> unmatched = std::exchange(unmatched_, {});
  for (const auto& flight : failed) {
    const OperationRequest& request = flight->operation.request();
    request.completion->failed(failure_of(flight->operation, error));
  }
  for (const OperationRequest& request : unmatched) {
    request.completion->failed(failure_of(request, error));
  }
}

void Operations::fail_with(Rank rank, const Error& error) {
  early_.forget(rank);
  for (const auto& flight : in_flight_.remove_with(rank)) {
    const OperationRequest& request = flight->operation.request();
    request.completion->failed(failure_of(flight->operation, error));
  }
  fail_receives_without_sender();
}

void Operations::leave(const Error& why) {
  for (const auto& flight : in_flight_.remove_unanswered_receives()) {
    const Operation& operation = flight->operation;
    links_.peer(flight->pair).outbox.forget(*flight);  // Its announcement may still be pending.
    operation.request().completion->failed(failure_of(operation, why));
  }
  for (const OperationRequest& request : std::exchange(unmatched_, {})) {
    request.completion->failed(failure_of(request, why));
  }
}

void Operations::on_timer(Time now) {
  if (now >= announce_at_) flush_announcements();
  if (now >= earliest_deadline_) check_deadlines(now);
}

/// Sends announcements that could not be piggybacked in time.
void Operations::flush_announcements() {
  announce_at_ = Time::max();
  for (const auto& peer : links_.peers()) {
    if (!peer || !peer->outbox.has_pending_announcements()) continue;
    peer->outbox.flush_announcements();
    links_.mark_dirty(peer->rank);
  }
}

void Operations::check_deadlines(Time now) {
  while (const InFlightOperation* late = first_late(now)) {
    failures_.fail({.error = {ErrorKind::timeout, timeout_text(*late, links_.transport())},
                    .peer = late->pair});
    if (state_.error) return;
  }
  for (std::size_t i = 0; i < unmatched_.size();) {
    earliest_deadline_ = std::min(earliest_deadline_, unmatched_[i].deadline);
    if (now < unmatched_[i].deadline) {
      ++i;
      continue;
    }
    fail_receive(i, {ErrorKind::timeout, receive_timeout_text(unmatched_[i])});
    if (state_.error) return;
  }
}

/// Returns an operation whose deadline has passed; null if there is none, and then
/// `earliest_deadline_` is that of the others.
const InFlightOperation* Operations::first_late(Time now) {
  earliest_deadline_ = Time::max();
  for (const auto& flight : in_flight_.all()) {
    const Time deadline = flight->operation.request().deadline;
    if (now >= deadline) return flight.get();
    earliest_deadline_ = std::min(earliest_deadline_, deadline);
  }
  return nullptr;
}

const std::vector<Rank>& Operations::awaited(bool all) {
  ++round_;
  awaited_.clear();
  const auto add = [&](Rank from) {
    if (from < 0 || std::exchange(links_.peer(from).round, round_) == round_) return;
    awaited_.push_back(from);
  };
  for (const auto& flight : in_flight_.all()) {
    add(flight->next_expected_peer());
    if (!all) continue;
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      const bool missing = std::ranges::any_of(
          exchange.receives, [&](schedule::OpIndex op) { return !flight->operation.complete(op); });
      if (missing) add(exchange.peer);
    }
  }
  return awaited_;
}

const Operation* Operations::first_needing(Rank rank) const {
  const auto found = std::ranges::find_if(
      in_flight_.all(), [rank](const auto& flight) { return flight->operation.needs(rank); });
  return found == in_flight_.all().end() ? nullptr : &(*found)->operation;
}

}  // namespace gradwire::engine

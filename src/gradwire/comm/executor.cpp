#include "gradwire/comm/executor.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/comm/abort_message.h"
#include "gradwire/comm/failure_text.h"

namespace gradwire {
struct Executor::Peer final : Inbox::Handler {
  Peer(Executor& owner, Rank peer_rank)
      : executor(owner), rank(peer_rank), outbox(peer_rank, owner.options_.limits) {}

  Result<Landing> begin(const FrameHeader& header) override {
    return executor.begin_frame(rank, header);
  }
  Status complete(const FrameHeader& header) override {
    return executor.complete_frame(rank, header);
  }

  Executor& executor;
  Rank rank;
  Outbox outbox;
  Inbox inbox;
  std::array<std::byte, kMaxControlPayload> control{};  ///< Where control payloads land.
  bool dirty = false;
  bool departed = false;  ///< Has said goodbye.
  bool closed = false;    ///< Its stream has ended.
  bool garbled = false;   ///< What it sends cannot be read any more; it can still be told why.
};

Executor::Executor(Rank rank, int ranks, const ExecutorOptions& options, Transport& transport,
                   Time now)
    : rank_(rank),
      options_(options),
      transport_(transport),
      now_(now),
      flights_(rank),
      early_(ranks, options.limits.eager_budget),
      liveness_(ranks, options.dead_peer_timeout, now),
      receive_buffer_(std::make_unique_for_overwrite<std::byte[]>(options.receive_buffer_bytes)) {
  GRADWIRE_CHECK(options.limits.segment_bytes % 8 == 0 && options.limits.segment_bytes > 0);
  GRADWIRE_CHECK(options.limits.segment_bytes <= kMaxDataPayload);
  for (Rank r = 0; r < ranks; ++r) {
    peers_.push_back(r == rank ? nullptr : std::make_unique<Peer>(*this, r));
  }
}

Executor::~Executor() = default;

void Executor::post(OperationRequest request, Time now) {
  now_ = now;
  if (error_) {
    request.completion->failed(after_failure(*error_));
    return;
  }
  request.deadline = now + request.timeout;
  earliest_deadline_ = std::min(earliest_deadline_, request.deadline);
  Flight& flight = flights_.add(std::move(request));
  announce(flight);
  flight.operation.start(woken_);
  route(flight);
  replay(flight);
  check_departed();
  flush_dirty();
}

void Executor::announce(Flight& flight) {
  std::array<std::byte, kFingerprintBytes> payload;
  encode(flight.operation.fingerprint(), payload);
  // Beginning with the next rank up: if all began with the lowest, they would all send to it first.
  const auto& exchanges = flight.operation.program().exchanges;
  const auto next =
      std::ranges::upper_bound(exchanges, rank_, {}, &CompiledProgram::Exchange::peer);
  const auto begin = static_cast<std::size_t>(next - exchanges.begin());
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    Peer& to = peer(exchanges[(begin + i) % exchanges.size()].peer);
    if (to.departed) continue;
    to.outbox.queue_control(FrameType::announce, flight.operation.key(), payload);
    mark_dirty(to.rank);
  }
}

/// What came before the operation was posted is handled as if it came now.
void Executor::replay(Flight& flight) {
  const OperationKey key = flight.operation.key();
  const Rank pair = flight.pair;
  const EarlyArrivals::Operation early = early_.take(key, pair);
  for (const EarlyArrivals::Announcement& announcement : early.announcements) {
    if (!accept_announcement(flight, announcement.peer, announcement.fingerprint)) return;
  }
  finish_if_complete(flight);
  for (const EarlyArrivals::Piece& piece : early.pieces) {
    Flight* still = flights_.find(key, piece.peer);
    if (still == nullptr) return;
    const Result<Landing> landing = landing_of(*still, piece.peer, piece.header);
    if (!landing) {
      fail(landing.error().kind, landing.error().message, rank_);
      return;
    }
    land(*landing, 0, piece.payload);
    advance(*still,
            still->operation.program().exchange_with(piece.peer)->receives[piece.header.message],
            piece.header.offset + piece.payload.size());
  }
}

bool Executor::accept_announcement(Flight& flight, Rank from, const Fingerprint& theirs) {
  const int index = flight.exchange_index(from);
  if (index < 0 || theirs != flight.operation.fingerprint()) {
    fail(ErrorKind::mismatch,
         disagreement(transport_.describe(from), theirs, rank_, flight.operation), rank_);
    return false;
  }
  flight.announced[static_cast<std::size_t>(index)] = true;
  peer(from).outbox.announced(flight.operation.key());
  mark_dirty(from);
  return true;
}

void Executor::advance(Flight& flight, OpIndex op, std::size_t bytes) {
  flight.operation.advance(op, bytes, woken_);
  route(flight);
  finish_if_complete(flight);
}

void Executor::route(Flight& flight) {
  for (OpIndex op : woken_) {
    const Rank to = flight.operation.program().program.ops[op].peer;
    peer(to).outbox.queue_message(flight, op);
    mark_dirty(to);
  }
  woken_.clear();
}

void Executor::finish_if_complete(Flight& flight) {
  if (!flight.operation.all_complete()) return;
  const std::unique_ptr<Flight> finished = flights_.remove(flight);
  finished->operation.request().completion->succeeded();
}

Result<Landing> Executor::begin_frame(Rank from, const FrameHeader& header) {
  if (header.type != FrameType::data) return Landing{.to = peer(from).control.data()};
  if (error_) return Landing{};
  const OperationKey key{header.channel, header.sequence};
  if (Flight* flight = flights_.find(key, from)) return landing_of(*flight, from, header);
  if (flights_.was_posted(key, from)) {
    return failure(ErrorKind::corrupted, "data of an operation that is over");
  }
  Result<std::byte*> room = early_.make_room(from, header);
  if (!room) return tl::unexpected(room.error());
  return Landing{.to = *room};
}

Status Executor::complete_frame(Rank from, const FrameHeader& header) {
  switch (header.type) {
    case FrameType::data:
      return complete_data(from, header);
    case FrameType::announce:
      return hear_announcement(from, header);
    case FrameType::abort:
      hear_abort(from, header);
      break;
    case FrameType::goodbye:
      hear_goodbye(from);
      break;
    case FrameType::ping:
      break;
  }
  return {};
}

Status Executor::complete_data(Rank from, const FrameHeader& header) {
  if (error_) return {};
  const OperationKey key{header.channel, header.sequence};
  Flight* flight = flights_.find(key, from);
  const bool was_early = early_.complete(key, from);
  if (flight == nullptr) return {};
  if (was_early) {
    replay(*flight);  // The operation was posted while this frame was still coming in.
  } else {
    const auto& receives = flight->operation.program().exchange_with(from)->receives;
    advance(*flight, receives[header.message], header.offset + header.length);
  }
  return {};
}

Status Executor::hear_announcement(Rank from, const FrameHeader& header) {
  if (error_) return {};
  const OperationKey key{header.channel, header.sequence};
  const Result<Fingerprint> theirs =
      decode_fingerprint(ConstBytes(peer(from).control).first(header.length));
  if (!theirs) return tl::unexpected(theirs.error());
  if (Flight* flight = flights_.find(key, from)) {
    accept_announcement(*flight, from, *theirs);
    return {};
  }
  if (!flights_.was_posted(key, from)) return early_.announce(key, from, *theirs);
  peer(from).outbox.announced(key);  // We were done before the peer began: it only takes.
  return {};
}

void Executor::hear_abort(Rank from, const FrameHeader& header) {
  const AbortMessage message =
      decode_abort(ConstBytes(peer(from).control).first(header.length), from);
  fail(message.kind, reported_by(message.origin, message.text), message.origin);
}

void Executor::hear_goodbye(Rank from) {
  peer(from).departed = true;
  check_departed();
}

/// A rank may leave when it has done its part of everything, also of what others post later: a
/// broadcast's root need not wait for its leaves. Whoever still needs something of it fails.
void Executor::check_departed() {
  for (const auto& flight : flights_.all()) {
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      if (!peer(exchange.peer).departed || !flight->operation.needs(exchange.peer)) continue;
      fail(ErrorKind::disconnected,
           left_during(transport_.describe(exchange.peer), flight->operation), rank_);
      return;
    }
  }
}

void Executor::sent(Flight& flight, OpIndex op, std::size_t bytes) {
  advance(flight, op, bytes);
}

void Executor::on_readable(Rank from, Time now) {
  now_ = now;
  Peer& source = peer(from);
  if (source.closed || source.garbled) return;
  const Bytes shared(receive_buffer_.get(), options_.receive_buffer_bytes);
  liveness_.heard(from, now);
  while (!source.closed && !source.garbled) {
    const Inbox::Reading reading = source.inbox.where_to_read(shared);
    const std::span<const Bytes> pieces = std::span(reading.pieces).first(reading.count);
    const std::size_t offered = pieces[0].size() + (pieces.size() > 1 ? pieces[1].size() : 0);
    const Result<std::size_t> size = transport_.read(from, pieces);
    if (!size) {
      lose(from, size.error());
      break;
    }
    if (Status status = source.inbox.received(shared, *size, source); !status) {
      source.garbled = true;
      fail(status.error().kind, transport_.describe(from) + " sent " + status.error().message,
           rank_);
    }
    flush_dirty();
    if (*size < offered) break;
  }
  flush_dirty();
}

void Executor::on_writable(Rank to, Time now) {
  now_ = now;
  peer(to).outbox.writable();
  mark_dirty(to);
  flush_dirty();
}

void Executor::mark_dirty(Rank rank) {
  Peer& to = peer(rank);
  if (to.dirty || to.closed) return;
  to.dirty = true;
  dirty_.push_back(rank);
}

void Executor::flush_dirty() {
  // In the order in which there came to be something to send; more may be added meanwhile.
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    Peer& to = peer(dirty_[i]);
    to.dirty = false;
    if (to.closed) continue;
    const std::size_t before = to.outbox.total_bytes();
    const Status status = to.outbox.flush(transport_, *this);
    if (to.outbox.total_bytes() != before) liveness_.spoke(to.rank, now_);
    if (!status) lose(to.rank, status.error());
  }
  dirty_.clear();
}

/// The stream to a peer has ended.
void Executor::lose(Rank rank, const Error& error) {
  Peer& lost = peer(rank);
  lost.closed = true;
  if (lost.departed || error_) return;
  const Operation* during = nullptr;
  for (const auto& flight : flights_.all()) {
    if (during == nullptr && flight->operation.needs(rank)) during = &flight->operation;
  }
  fail(error.kind, lost_during(error.message, during), rank_);
}

bool Executor::flushed() const {
  return std::ranges::all_of(peers_, [](const auto& peer) {
    return peer == nullptr || peer->closed || peer->outbox.nothing_committed();
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

void Executor::abort(Error error) {
  fail(error.kind, error.message, rank_);
  flush_dirty();
}

void Executor::say_goodbye() {
  for (const auto& peer : peers_) {
    if (!peer || error_) continue;
    peer->outbox.queue_control(FrameType::goodbye, {}, {});
    mark_dirty(peer->rank);
  }
  flush_dirty();
}

/// The first error ends everything. Nothing touches lent memory afterwards.
void Executor::fail(ErrorKind kind, const std::string& message, Rank origin) {
  if (error_) return;
  error_ = Error{kind, message};
  woken_.clear();
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->outbox.drop_messages();
    peer->inbox.abandon();
  }
  early_.clear();
  tell_peers(*error_, origin);
  const std::vector<std::unique_ptr<Flight>> failed = flights_.remove_all();
  for (const auto& flight : failed) {
    const OperationRequest& request = flight->operation.request();
    request.completion->failed(failure_of(flight->operation, *error_));
  }
}

void Executor::tell_peers(const Error& error, Rank origin) {
  const std::vector<std::byte> payload = encode_abort({error.kind, origin, error.message});
  for (const auto& peer : peers_) {
    if (!peer || peer->closed) continue;
    peer->outbox.queue_control(FrameType::abort, {}, payload);
    mark_dirty(peer->rank);
  }
}

Time Executor::next_timer() const {
  return std::min(liveness_.next_check(), earliest_deadline_);
}

void Executor::on_timer(Time now) {
  now_ = now;
  if (now >= earliest_deadline_) check_deadlines(now);
  if (now >= liveness_.next_check()) check_silence(now);
  flush_dirty();
}

void Executor::check_deadlines(Time now) {
  earliest_deadline_ = Time::max();
  for (const auto& flight : flights_.all()) {
    const Time deadline = flight->operation.request().deadline;
    if (now < deadline) {
      earliest_deadline_ = std::min(earliest_deadline_, deadline);
      continue;
    }
    fail(ErrorKind::timeout, overdue(*flight, transport_), rank_);
    return;
  }
}

void Executor::check_silence(Time now) {
  liveness_.check(now);
  if (error_) return;
  for (const auto& peer : peers_) {
    if (!peer || peer->closed || peer->departed) continue;
    if (liveness_.is_dead(peer->rank, now)) {
      fail(ErrorKind::disconnected,
           silent(transport_.describe(peer->rank), options_.dead_peer_timeout), rank_);
      return;
    }
    if (!liveness_.wants_ping(peer->rank, now)) continue;
    peer->outbox.queue_control(FrameType::ping, {}, {});
    mark_dirty(peer->rank);
  }
}

}  // namespace gradwire

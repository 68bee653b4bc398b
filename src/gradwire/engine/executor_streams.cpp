#include <algorithm>
#include <utility>

#include "gradwire/engine/executor_peer.h"
#include "gradwire/engine/failure_text.h"

/// The executor's reads and writes.
namespace gradwire {
namespace {

/// Bytes consumed per step from shared memory, so that the peer can refill it meanwhile.
constexpr std::size_t kInPlacePiece = 64 * 1024;

/// Maximum bytes that one call reads from a stream, and writes to it: 100 us of work at 5 GB/s, so
/// that the lock and the next poll (1 us) cost little in comparison. Without a limit, a call would
/// hold the lock until the last byte of a peer as fast as this rank. Timers, pings and post() of
/// other threads would be blocked until then.
constexpr std::size_t kBytesPerCall = 512 * 1024;

/// Every kAskAllEvery-th call of read_awaited() reads from all peers with missing messages, not
/// only from the senders of the next ones.
constexpr std::uint64_t kAskAllEvery = 8;

/// Bytes that may arrive before a wake-up: a small fraction (1 / kPartsOfDue) of an operation's
/// missing bytes, because each hop adds this delay; at most kMostExpected, so that they stay in the
/// cache.
constexpr std::size_t kPartsOfDue = 128;
constexpr std::size_t kMostExpected = 256 * 1024;

/// A peer with at least this many missing bytes counts as a concurrent sender (incast control).
constexpr std::size_t kMuch = 64 * 1024;

/// Share of the last switch's queue for a peer whose turn comes later. It may be ahead of the
/// others, and its bytes must not delay those of the stragglers.
constexpr double kLaterShare = 1.0 / 6;

/// Share of all peers together where some are ahead: a single stream fills a port with fewer bytes
/// in flight than several that take turns.
constexpr double kShareInTurn = 2.0 / 3;

}  // namespace

Executor::Rail& Executor::rail(StreamId stream) {
  return *peer(stream.peer).rails[static_cast<std::size_t>(stream.rail)];
}

void Executor::on_readable(StreamId stream, Time now) {
  now_ = now;
  Rail& source = rail(stream);
  if (!still_reads(source)) return;
  // The transport may report a stream without new bytes (Transport::expect).
  if (read(source, kBytesPerCall) > 0) liveness_.heard(stream.peer, now);
  drain_failed();
  flush_dirty();
}

bool Executor::read_awaited(Time now) {
  now_ = now;
  collect_awaited(++round_ % kAskAllEvery == 0);
  std::size_t bytes = 0;
  for (const Rank from : awaited_) {
    std::size_t from_peer = 0;
    for (const auto& source : peer(from).rails) {
      if (still_reads(*source)) from_peer += read(*source, kBytesPerCall);
    }
    if (from_peer > 0) liveness_.heard(from, now);
    bytes += from_peer;
  }
  drain_failed();
  flush_dirty();
  return bytes > 0;
}

/// Collects the sender of each operation's next message; `all`: all peers with missing messages.
void Executor::collect_awaited(bool all) {
  awaited_.clear();
  const auto add = [&](Rank from) {
    if (from < 0 || std::exchange(peer(from).round, round_) == round_) return;
    awaited_.push_back(from);
  };
  for (const auto& flight : flights_.all()) {
    add(flight->awaits());
    if (!all) continue;
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      const bool missing = std::ranges::any_of(
          exchange.receives, [&](OpIndex op) { return !flight->operation.complete(op); });
      if (missing) add(exchange.peer);
    }
  }
}

void Executor::rest() {
  int now = 0, later = 0;
  for (const auto& from : peers_) {
    if (from == nullptr || from->closed || from->rails.front()->in_place) continue;
    look_ahead(*from);
    if (from->due_in_all >= kMuch) ++(from->later ? later : now);
  }
  const bool alone = now + later <= 1;
  const double all = later > 0 ? kShareInTurn : 1;
  const double share =
      alone ? 1 : std::max(kLaterShare, (all - later * kLaterShare) / std::max(now, 1));
  for (const auto& from : peers_) {
    if (from == nullptr || from->closed || from->rails.front()->in_place) continue;
    // A peer that is not sending keeps its share for its next data.
    if (from->due_in_all >= kMuch && !(alone && from->in_turn))
      from->share = from->later ? kLaterShare : share;
    const std::size_t worth = std::min(from->due / kPartsOfDue, kMostExpected) / from->rails.size();
    for (const auto& source : from->rails) {
      if (!still_reads(*source)) continue;
      transport_.expect(source->stream, worth, from->share);
    }
  }
}

/// Computes the bytes that operations still miss from a peer.
void Executor::look_ahead(Peer& from) const {
  from.due = 0;
  from.due_in_all = 0;
  bool in_turn = true, later = true;
  for (const auto& flight : flights_.all()) {
    const Operation& operation = flight->operation;
    const CompiledProgram::Exchange* exchange = operation.program().exchange_with(from.rank);
    if (exchange == nullptr) continue;
    std::size_t due = 0;
    for (const OpIndex op : exchange->receives) due += operation.size(op) - operation.done(op);
    if (due == 0) continue;
    from.due = from.due == 0 ? due : std::min(from.due, due);
    from.due_in_all += due;
    in_turn = in_turn && operation.program().schedule.in_turn;
    later = later && in_turn && flight->awaits() != from.rank;
  }
  from.in_turn = from.due > 0 && in_turn;
  from.later = from.due > 0 && later;
}

bool Executor::still_reads(const Rail& rail) const {
  return !rail.closed && !rail.garbled;
}

/// Reads the available bytes, up to about `budget`, and defers the rest. Returns the number of
/// bytes read.
std::size_t Executor::read(Rail& rail, std::size_t budget) {
  const std::size_t bytes = rail.in_place ? read_in_place(rail, budget) : read_copy(rail, budget);
  if (bytes > 0) {
    note_answer(peer(rail.stream.peer));
    rail.heard = now_;
  }
  return bytes;
}

/// Returns a buffer for bytes written before the rail failed. They are discarded, because they were
/// retransmitted over another rail.
Inbox::Reading Executor::stale_reading(const Rail& rail, Bytes shared) {
  Inbox::Reading reading;
  reading.size = std::min<std::uint64_t>(rail.stale_bytes, shared.size());
  reading.pieces[reading.count++] = shared.first(reading.size);
  return reading;
}

std::size_t Executor::read_copy(Rail& rail, std::size_t budget) {
  const Bytes shared(receive_buffer_.get(), options_.receive_buffer_bytes);
  std::size_t total = 0;
  while (still_reads(rail)) {
    const Inbox::Reading reading =
        rail.stale_bytes > 0 ? stale_reading(rail, shared) : rail.inbox.where_to_read(shared);
    const Result<std::size_t> size =
        transport_.read(rail.stream, std::span(reading.pieces).first(reading.count));
    if (!size) {
      rail.closed = true;
      lose(rail.stream, size.error());
      break;
    }
    total += *size;
    rail.received_bytes += *size;
    if (rail.stale_bytes > 0) {
      rail.stale_bytes -= *size;
    } else if (Status status = rail.inbox.received(shared, *size, rail); !status) {
      garble(rail, status.error());
    }
    flush_dirty();
    if (*size < reading.size) break;
    if (total >= budget) {
      put_off_reading(rail);
      break;
    }
  }
  return total;
}

std::size_t Executor::read_in_place(Rail& rail, std::size_t budget) {
  std::size_t total = 0;
  while (still_reads(rail)) {
    if (total >= budget) {
      put_off_reading(rail);
      break;
    }
    const Result<ConstBytes> there = transport_.peek(rail.stream);
    if (!there) {
      rail.closed = true;
      lose(rail.stream, there.error());
      break;
    }
    if (there->empty()) break;
    const ConstBytes piece = there->first(std::min(there->size(), kInPlacePiece));
    total += piece.size();
    if (Status status = rail.inbox.take(piece, rail); !status) garble(rail, status.error());
    transport_.consume(rail.stream, piece.size());
    flush_dirty();
  }
  return total;
}

/// Readiness is edge-triggered: records the stream, because no event follows for unread bytes.
void Executor::put_off_reading(Rail& rail) {
  if (!std::exchange(rail.unread, true)) unread_.push_back(rail.stream);
}

/// Continues the deferred reads and writes, each stream with a new budget.
void Executor::resume_put_off() {
  for (const Rank rank : std::exchange(unwritten_, {})) {
    peer(rank).unwritten = false;
    mark_dirty(rank);
  }
  for (const StreamId stream : std::exchange(unread_, {})) {
    Rail& source = rail(stream);
    source.unread = false;
    if (still_reads(source) && read(source, kBytesPerCall) > 0) {
      liveness_.heard(stream.peer, now_);
    }
  }
}

void Executor::garble(Rail& rail, const Error& error) {
  rail.garbled = true;
  fail(error.kind, transport_.describe(rail.stream) + " sent " + error.message, rank_);
}

void Executor::on_writable(StreamId stream, Time now) {
  now_ = now;
  peer(stream.peer).outbox.writable(stream.rail);
  mark_dirty(stream.peer);
  flush_dirty();
}

void Executor::mark_dirty(Rank rank) {
  Peer& to = peer(rank);
  if (to.dirty || to.closed) return;
  to.dirty = true;
  dirty_.push_back(rank);
}

void Executor::flush_dirty() {
  if (std::exchange(flushing_, true)) return;  // The outer call's loop handles additions.
  // In the order of mark_dirty(); the loop may add entries.
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    Peer& to = peer(dirty_[i]);
    to.dirty = false;
    if (to.closed) continue;
    const std::size_t before = to.outbox.total_bytes();
    to.outbox.measure(now_);
    while (flush_rails(to)) {
    }
    if (to.outbox.total_bytes() != before) liveness_.spoke(to.rank, now_);
    if (to.has_rails()) watch_rails(to);
  }
  dirty_.clear();
  flushing_ = false;
}

/// Flushes every live rail to a peer once. Returns true if another round may send more: a rail may
/// now take what it left to another one.
bool Executor::flush_rails(Peer& to) {
  const std::size_t before = to.outbox.total_bytes();
  for (const auto& rail : to.rails) {
    if (!to.outbox.is_writing(rail->stream.rail)) continue;
    const Result<bool> all = to.outbox.flush(rail->stream.rail, kBytesPerCall, *this);
    if (!all) {
      lose(rail->stream, all.error());
    } else if (!*all && !std::exchange(to.unwritten, true)) {
      unwritten_.push_back(to.rank);
    }
  }
  const bool wrote = to.outbox.total_bytes() != before;
  return wrote && to.has_rails() && !to.unwritten && !to.closed;
}

/// A stream to a peer has ended.
void Executor::lose(StreamId stream, const Error& error) {
  Peer& from = peer(stream.peer);
  if (!from.has_rails()) {
    lose_peer(stream.peer, error);
  } else {
    break_rail(rail(stream), error);
  }
}

void Executor::lose_peer(Rank rank, const Error& error) {
  Peer& lost = peer(rank);
  if (std::exchange(lost.closed, true)) return;
  // Its last frames may contain the cause (abort) or a goodbye.
  for (const auto& rail : lost.rails) {
    if (still_reads(*rail)) read(*rail, kToItsEnd);
    rail->closed = true;
  }
  if (lost.departed || said_goodbye_ || error_) return;
  const Operation* during = nullptr;
  for (const auto& flight : flights_.all()) {
    if (during == nullptr && flight->operation.needs(rank)) during = &flight->operation;
  }
  fail(error.kind, lost_during(error.message, during), rank_);
}

}  // namespace gradwire

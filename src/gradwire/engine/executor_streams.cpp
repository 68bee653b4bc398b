#include <algorithm>
#include <limits>
#include <utility>

#include "gradwire/engine/executor.h"
#include "gradwire/engine/failure_text.h"
#include "gradwire/engine/receive_demand.h"

/// The executor's reads and writes.
namespace gradwire::engine {
namespace {

/// Bytes consumed per step from shared memory, so that the peer can refill it meanwhile.
constexpr std::size_t kInPlacePiece = 64 * 1024;

/// Maximum bytes that one call reads from a stream, and writes to it: 100 us of work at 5 GB/s, so
/// that the lock and the next poll (1 us) cost little in comparison. Without a limit, a call would
/// hold the lock until the last byte of a peer as fast as this rank. Timers, pings and post() of
/// other threads would be blocked until then.
constexpr std::size_t kBytesPerCall = 512 * 1024;

/// Every kReadAllEvery-th call of read_awaited() reads from all peers with missing messages, not
/// only from the senders of the next ones.
constexpr std::uint64_t kReadAllEvery = 8;

}  // namespace

/// Passes the frames of one rail to the executor.
class Executor::Frames final : public Inbox::Handler {
 public:
  Frames(Executor& executor, Rail& rail) : executor_(executor), rail_(rail) {}
  Result<PayloadSink> begin(const net::FrameHeader& header) override {
    return executor_.begin_frame(rail_, header);
  }
  Status complete(const net::FrameHeader& header) override {
    return executor_.complete_frame(rail_, header);
  }

 private:
  Executor& executor_;
  Rail& rail_;
};

Rail& Executor::rail(net::StreamId stream) {
  return *peer(stream.peer).rails[static_cast<std::size_t>(stream.rail)];
}

void Executor::on_readable(net::StreamId stream, Time now) {
  state_.now = now;
  Rail& source = rail(stream);
  if (!source.accepts_input()) return;
  // The transport may report a stream without new bytes (Transport::expect).
  if (read(source, kBytesPerCall) > 0) liveness_.on_received(stream.peer, now);
  failover_.settle();
  flush_dirty();
}

bool Executor::read_awaited(Time now) {
  state_.now = now;
  collect_awaited(++round_ % kReadAllEvery == 0);
  std::size_t bytes = 0;
  for (const Rank from : awaited_) {
    std::size_t from_peer = 0;
    for (const auto& source : peer(from).rails) {
      if (source->accepts_input()) from_peer += read(*source, kBytesPerCall);
    }
    if (from_peer > 0) liveness_.on_received(from, now);
    bytes += from_peer;
  }
  failover_.settle();
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
  for (const auto& flight : in_flight_.all()) {
    add(flight->next_expected_peer());
    if (!all) continue;
    for (const CompiledProgram::Exchange& exchange : flight->operation.program().exchanges) {
      const bool missing = std::ranges::any_of(
          exchange.receives, [&](schedule::OpIndex op) { return !flight->operation.complete(op); });
      if (missing) add(exchange.peer);
    }
  }
}

void Executor::prepare_to_sleep() {
  expect_bytes(peers_, in_flight_, transport_);
}

/// Reads the available bytes, up to about `budget`, and defers the rest. Returns the number of
/// bytes read.
std::size_t Executor::read(Rail& rail, std::size_t budget) {
  const std::size_t bytes = rail.in_place ? read_in_place(rail, budget) : read_copy(rail, budget);
  if (bytes > 0) {
    failover_.on_answer(peer(rail.stream.peer));
    rail.last_received = state_.now;
  }
  return bytes;
}

void Executor::read_all(Rail& rail) {
  read(rail, std::numeric_limits<std::size_t>::max());
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
  Frames frames(*this, rail);
  const Bytes shared(receive_buffer_.get(), options_.receive_buffer_bytes);
  std::size_t total = 0;
  while (rail.accepts_input()) {
    const Inbox::Reading reading =
        rail.stale_bytes > 0 ? stale_reading(rail, shared) : rail.inbox.read_pieces(shared);
    const Result<std::size_t> size =
        transport_.read(rail.stream, std::span(reading.pieces).first(reading.count));
    if (!size) {
      rail.closed = true;
      on_disconnect(rail.stream, size.error());
      break;
    }
    total += *size;
    rail.received_bytes += *size;
    if (rail.stale_bytes > 0) {
      rail.stale_bytes -= *size;
    } else if (Status status = rail.inbox.received(shared, *size, frames); !status) {
      mark_corrupt(rail, status.error());
    }
    flush_dirty();
    if (*size < reading.size) break;
    if (total >= budget) {
      defer_reading(rail);
      break;
    }
  }
  return total;
}

std::size_t Executor::read_in_place(Rail& rail, std::size_t budget) {
  Frames frames(*this, rail);
  std::size_t total = 0;
  while (rail.accepts_input()) {
    if (total >= budget) {
      defer_reading(rail);
      break;
    }
    const Result<ConstBytes> there = transport_.peek(rail.stream);
    if (!there) {
      rail.closed = true;
      on_disconnect(rail.stream, there.error());
      break;
    }
    if (there->empty()) break;
    const ConstBytes piece = there->first(std::min(there->size(), kInPlacePiece));
    total += piece.size();
    if (Status status = rail.inbox.take(piece, frames); !status) mark_corrupt(rail, status.error());
    transport_.consume(rail.stream, piece.size());
    flush_dirty();
  }
  return total;
}

/// Readiness is edge-triggered: records the stream, because no event follows for unread bytes.
void Executor::defer_reading(Rail& rail) {
  if (!std::exchange(rail.unread, true)) unread_.push_back(rail.stream);
}

/// Continues the deferred reads and writes, each stream with a new budget.
void Executor::resume_deferred() {
  for (const Rank rank : std::exchange(unwritten_, {})) {
    peer(rank).unwritten = false;
    mark_dirty(rank);
  }
  for (const net::StreamId stream : std::exchange(unread_, {})) {
    Rail& source = rail(stream);
    source.unread = false;
    if (source.accepts_input() && read(source, kBytesPerCall) > 0) {
      liveness_.on_received(stream.peer, state_.now);
    }
  }
}

void Executor::mark_corrupt(Rail& rail, const Error& error) {
  rail.corrupt = true;
  fail(error.kind, transport_.describe(rail.stream) + " sent " + error.message);
}

void Executor::on_writable(net::StreamId stream, Time now) {
  state_.now = now;
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
    to.outbox.measure(state_.now);
    while (flush_rails(to)) {
    }
    if (to.outbox.total_bytes() != before) liveness_.on_sent(to.rank, state_.now);
    if (to.has_rails()) failover_.watch(to);
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
      on_disconnect(rail->stream, all.error());
    } else if (!*all && !std::exchange(to.unwritten, true)) {
      unwritten_.push_back(to.rank);
    }
  }
  const bool wrote = to.outbox.total_bytes() != before;
  return wrote && to.has_rails() && !to.unwritten && !to.closed;
}

/// A stream to a peer has ended.
void Executor::on_disconnect(net::StreamId stream, const Error& error) {
  Peer& from = peer(stream.peer);
  if (!from.has_rails()) {
    on_peer_lost(stream.peer, error);
  } else {
    failover_.on_broken(rail(stream), error);
  }
}

void Executor::on_peer_lost(Rank rank, const Error& error) {
  Peer& lost = peer(rank);
  if (std::exchange(lost.closed, true)) return;
  // Its last frames may contain the cause (abort) or a goodbye.
  for (const auto& rail : lost.rails) {
    if (rail->accepts_input()) read_all(*rail);
    rail->closed = true;
  }
  if (lost.departed || state_.leaving || state_.error) return;
  const Operation* during = nullptr;
  for (const auto& flight : in_flight_.all()) {
    if (during == nullptr && flight->operation.needs(rank)) during = &flight->operation;
  }
  fail_because_of(rank, error.kind, disconnect_text(error.message, during));
}

}  // namespace gradwire::engine

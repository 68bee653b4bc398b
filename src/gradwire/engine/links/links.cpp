#include "gradwire/engine/links/links.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gradwire/engine/failure_text.h"

namespace gradwire::engine {
namespace {

/// Bytes consumed per step from shared memory, so that the peer can refill it meanwhile.
constexpr std::size_t kInPlacePiece = 64 * 1024;

/// Maximum bytes that one call reads from a stream, and writes to it: 100 us of work at 5 GB/s, so
/// that the lock and the next poll (1 us) cost little in comparison. Without a limit, a call would
/// hold the lock until the last byte of a peer as fast as this rank. Timers, pings and post() of
/// other threads would be blocked until then.
constexpr std::size_t kBytesPerCall = 512 * 1024;

}  // namespace

/// Passes the frames of one rail to the handler.
class Links::Frames final : public Inbox::Handler {
 public:
  Frames(Links::Handler& handler, Rail& rail) : handler_(handler), rail_(rail) {}
  Result<PayloadSink> begin(const net::FrameHeader& header) override {
    return handler_.begin_frame(rail_, header);
  }
  Status complete(const net::FrameHeader& header) override {
    return handler_.complete_frame(rail_, header);
  }

 private:
  Links::Handler& handler_;
  Rail& rail_;
};

Links::Links(Rank rank, int ranks, const Options& options, const ExecutorState& state,
             net::Transport& transport, Handler& handler)
    : options_(options),
      state_(state),
      transport_(transport),
      handler_(handler),
      liveness_(ranks, options.dead_peer_timeout, state.now),
      failover_(rank, state, peers_, transport, *this, options.on_warning),
      receive_buffer_(std::make_unique_for_overwrite<std::byte[]>(options.receive_buffer_bytes)) {
  for (Rank r = 0; r < ranks; ++r) {
    peers_.push_back(r == rank ? nullptr : std::make_unique<Peer>(r, options.limits, transport));
  }
}

Rail& Links::rail(net::StreamId stream) const {
  return *peer(stream.peer).rails[static_cast<std::size_t>(stream.rail)];
}

void Links::read(net::StreamId stream) {
  Rail& source = rail(stream);
  if (!source.accepts_input()) return;
  // The transport may report a stream without new bytes (Transport::expect).
  if (read(source, kBytesPerCall) > 0) liveness_.on_received(stream.peer, state_.now);
}

std::size_t Links::read(const std::vector<Rank>& from) {
  std::size_t bytes = 0;
  for (const Rank rank : from) {
    std::size_t from_peer = 0;
    for (const auto& source : peer(rank).rails) {
      if (source->accepts_input()) from_peer += read(*source, kBytesPerCall);
    }
    if (from_peer > 0) liveness_.on_received(rank, state_.now);
    bytes += from_peer;
  }
  return bytes;
}

/// Reads the available bytes, up to about `budget`, and defers the rest. Returns the number of
/// bytes read.
std::size_t Links::read(Rail& rail, std::size_t budget) {
  const std::size_t bytes = rail.in_place ? read_in_place(rail, budget) : read_copy(rail, budget);
  if (bytes > 0) {
    failover_.on_answer(peer(rail.stream.peer));
    rail.last_received = state_.now;
  }
  return bytes;
}

void Links::read_all(Rail& rail) {
  read(rail, std::numeric_limits<std::size_t>::max());
}

/// Returns a buffer for bytes written before the rail failed. They are discarded, because they were
/// retransmitted over another rail.
Inbox::Reading Links::stale_reading(const Rail& rail, Bytes shared) {
  Inbox::Reading reading;
  reading.size = std::min<std::uint64_t>(rail.stale_bytes, shared.size());
  reading.pieces[reading.count++] = shared.first(reading.size);
  return reading;
}

std::size_t Links::read_copy(Rail& rail, std::size_t budget) {
  Frames frames(handler_, rail);
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
    flush();
    if (*size < reading.size) break;
    if (total >= budget) {
      defer_reading(rail);
      break;
    }
  }
  return total;
}

std::size_t Links::read_in_place(Rail& rail, std::size_t budget) {
  Frames frames(handler_, rail);
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
    flush();
  }
  return total;
}

/// Readiness is edge-triggered: records the stream, because no event follows for unread bytes.
void Links::defer_reading(Rail& rail) {
  if (!std::exchange(rail.unread, true)) unread_.push_back(rail.stream);
}

/// Continues the deferred reads and writes, each stream with a new budget.
void Links::resume_deferred() {
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

void Links::mark_corrupt(Rail& rail, const Error& error) {
  rail.corrupt = true;
  handler_.fail({.error = {error.kind, transport_.describe(rail.stream) + " sent " + error.message},
                 .peer = rail.stream.peer});
}

void Links::writable(net::StreamId stream) {
  peer(stream.peer).outbox.writable(stream.rail);
  mark_dirty(stream.peer);
}

void Links::mark_dirty(Rank rank) {
  Peer& to = peer(rank);
  if (to.dirty || to.closed) return;
  to.dirty = true;
  dirty_.push_back(rank);
}

void Links::flush() {
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
bool Links::flush_rails(Peer& to) {
  const std::size_t before = to.outbox.total_bytes();
  for (const auto& rail : to.rails) {
    if (!to.outbox.is_writing(rail->stream.rail)) continue;
    const Result<bool> all = to.outbox.flush(rail->stream.rail, kBytesPerCall, handler_);
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
void Links::on_disconnect(net::StreamId stream, const Error& error) {
  Peer& from = peer(stream.peer);
  if (!from.has_rails()) {
    on_peer_lost(stream.peer, error);
  } else {
    failover_.on_broken(rail(stream), error);
  }
}

void Links::on_peer_lost(Rank rank, const Error& error) {
  Peer& lost = peer(rank);
  if (std::exchange(lost.closed, true)) return;
  // Its last frames may contain the cause (abort) or a goodbye.
  for (const auto& rail : lost.rails) {
    if (rail->accepts_input()) read_all(*rail);
    rail->closed = true;
  }
  if (lost.departed || state_.leaving || state_.error) return;
  handler_.on_peer_lost(rank, error);
}

void Links::abandon_messages(Peer& peer) {
  peer.outbox.drop_messages();
  for (const auto& rail : peer.rails) rail->inbox.abandon();
}

void Links::send_abort(Peer& to, ConstBytes message) {
  if (to.closed) return;
  for (const auto& rail : to.rails) {
    if (rail->failed) continue;
    to.outbox.queue_control_on(rail->stream.rail, {.type = net::FrameType::abort}, message);
  }
  mark_dirty(to.rank);
}

Time Links::next_timer() const {
  if (!unread_.empty() || !unwritten_.empty()) return state_.now;
  return std::min(liveness_.next_check(), failover_.next_check());
}

void Links::check(Time now) {
  if (now >= failover_.next_check()) failover_.check(now);
  if (now >= liveness_.next_check()) check_silence(now);
}

void Links::check_silence(Time now) {
  liveness_.check(now);
  for (const auto& peer : peers_) {
    if (state_.error) return;
    if (!peer || peer->closed || peer->departed || peer->error) continue;
    if (liveness_.is_dead(peer->rank, now)) {
      handler_.fail(
          {.error = {ErrorKind::disconnected, silence_text(transport_.describe({peer->rank, 0}),
                                                           options_.dead_peer_timeout)},
           .peer = peer->rank,
           .cause = peer->rank});
      continue;
    }
    if (!liveness_.needs_ping(peer->rank, now)) continue;
    peer->outbox.queue_control({.type = net::FrameType::ping});
    mark_dirty(peer->rank);
  }
}

bool Links::flushed() {
  return std::ranges::all_of(peers_, [](const auto& peer) {
    if (peer == nullptr || peer->closed) return true;
    peer->outbox.confirm();
    return peer->outbox.is_done() && std::ranges::none_of(peer->rails, [](const auto& rail) {
             return rail->failed && !rail->resent && !rail->goodbye;
           });
  });
}

}  // namespace gradwire::engine

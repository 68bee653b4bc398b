#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/engine/executor_state.h"
#include "gradwire/engine/links/liveness.h"
#include "gradwire/engine/links/outbox.h"
#include "gradwire/engine/links/peer.h"
#include "gradwire/engine/links/rail_failover.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

/// The streams to the peers. Knows frames and bytes, but no operations.
///
/// Invariant: each frame that arrives is handled once, and no frame stays in an outbox while a
/// stream of its peer takes bytes; or the peer is lost, and that is reported once.
///
/// A call reads and writes at most a budget (kBytesPerCall) per stream, so that the executor's lock
/// is held briefly, however fast the peer is. The rest is deferred to on_timer(), which is then due
/// at once. Not thread-safe.
class Links final : private RailFailover::Host {
 public:
  /// Handles what arrives, and the ends of peers.
  class Handler : public Outbox::Observer, public FailureHandler {
   public:
    /// See Inbox::Handler.
    virtual Result<PayloadSink> begin_frame(Rail& rail, const net::FrameHeader& header) = 0;
    virtual Status complete_frame(Rail& rail, const net::FrameHeader& header) = 0;
    /// The last stream to a peer has ended, which has not said goodbye.
    virtual void on_peer_lost(Rank rank, const Error& error) = 0;
    virtual void send_goodbye_on(const Rail& rail) = 0;
    /// All bytes that arrived on a failed rail have been read: its incomplete frame is lost.
    virtual void on_rail_drained(net::StreamId stream) = 0;
    /// A rail that had failed carries data again.
    virtual void on_rail_resumed(net::StreamId stream) = 0;
  };

  struct Options {
    OutboxLimits limits;
    std::size_t receive_buffer_bytes = 0;
    Duration dead_peer_timeout = {};
    RailFailover::Warning on_warning;
  };

  /// All references must outlive the links.
  Links(Rank rank, int ranks, const Options& options, const ExecutorState& state,
        net::Transport& transport, Handler& handler);

  Peer& peer(Rank rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  const Peers& peers() const { return peers_; }
  net::Transport& transport() const { return transport_; }

  /// Frames may have to be written to this peer by the next flush().
  void mark_dirty(Rank rank) override;

  /// Writes to the peers that were marked.
  void flush();

  /// Reads the available bytes of a stream, up to the budget.
  void read(net::StreamId stream);

  /// Reads from the peers without a readiness event. Returns the number of bytes.
  std::size_t read(const std::vector<Rank>& from);

  /// The stream accepts bytes again.
  void writable(net::StreamId stream);

  /// A notice about a rail has arrived, over another one. Fails with corrupted.
  Status on_notice(Rail& over, const net::FrameHeader& header) {
    return failover_.on_notice(over, header);
  }

  /// Acts on notices about rails. Called after reading.
  void settle() { failover_.settle(); }

  /// Continues deferred reads and writes. Called at next_timer(), before the operations' timers.
  void resume_deferred();
  /// Checks rails and peers that make no progress. Called at next_timer().
  void check(Time now);
  Time next_timer() const;

  /// Drops all frames of messages to a peer and what is being received from it. Memory of its
  /// operations is not accessed afterwards.
  static void abandon_messages(Peer& peer);

  /// Number of peers with which no operation can succeed any more: they have left, or failed.
  int gone() const { return gone_; }
  void count_gone(const Peer& peer) { gone_ += peer.departed != peer.error.has_value() ? 1 : 0; }

  /// Tells a peer that operations have failed.
  void send_abort(Peer& to, ConstBytes message);

  /// Returns true if all queued frames have been written to the transport; with several rails, if
  /// they have been delivered.
  bool flushed();

 private:
  class Frames;

  Rail& rail(net::StreamId stream) const;
  std::size_t read(Rail& rail, std::size_t budget);
  std::size_t read_copy(Rail& rail, std::size_t budget);
  static Inbox::Reading stale_reading(const Rail& rail, Bytes shared);
  std::size_t read_in_place(Rail& rail, std::size_t budget);
  void defer_reading(Rail& rail);
  void mark_corrupt(Rail& rail, const Error& error);
  bool flush_rails(Peer& to);
  void on_disconnect(net::StreamId stream, const Error& error);
  void check_silence(Time now);

  // RailFailover::Host
  void read_all(Rail& rail) override;
  void send_goodbye_on(const Rail& rail) override { handler_.send_goodbye_on(rail); }
  void on_peer_lost(Rank rank, const Error& error) override;
  void on_drained(net::StreamId stream) override { handler_.on_rail_drained(stream); }
  void on_resumed(net::StreamId stream) override { handler_.on_rail_resumed(stream); }
  void fail(const Failure& failure) override { handler_.fail(failure); }

  Options options_;
  const ExecutorState& state_;
  net::Transport& transport_;
  Handler& handler_;
  Peers peers_;
  Liveness liveness_;
  RailFailover failover_;
  std::vector<Rank> dirty_;  ///< Peers to which frames may have to be written.
  bool flushing_ = false;
  int gone_ = 0;
  std::vector<net::StreamId> unread_;  ///< Streams with deferred reads: the budget was spent.
  std::vector<Rank> unwritten_;        ///< Peers with deferred writes, likewise.
  std::unique_ptr<std::byte[]> receive_buffer_;
};

}  // namespace gradwire::engine

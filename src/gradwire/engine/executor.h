#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/engine/early_arrivals.h"
#include "gradwire/engine/in_flight_table.h"
#include "gradwire/engine/inbox.h"
#include "gradwire/engine/liveness.h"
#include "gradwire/engine/outbox.h"
#include "gradwire/engine/rail_failover.h"
#include "gradwire/engine/self_messages.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

struct ExecutorOptions {
  OutboxLimits limits;
  std::size_t receive_buffer_bytes = 256 * 1024;
  Duration dead_peer_timeout = std::chrono::seconds(5);
  /// Called with messages for the user that are not errors: a rail failed or recovered.
  std::function<void(const std::string&)> on_warning;
  /// Called once, when the operations have failed for a cause that this rank knows first hand: it
  /// was aborted here, or has lost the peer `cause`. Must not block.
  std::function<void(Rank cause, const std::string& message)> on_failure;
};

/// One rank's protocol engine: runs the programs of the operations in flight over the streams to
/// the peers. It is a state machine: the caller passes events and the time, the transport never
/// blocks, and Completions receive the outcome of operations. It owns no thread, reads no clock and
/// contains no algorithm. The same code runs over sockets and over simulated streams.
///
/// Protocol. A rank announces each posted operation, with its fingerprint, to every rank with which
/// it exchanges messages. The announcement is clear-to-send for large messages, so peers that have
/// large messages for this rank receive it at once. For other peers it is piggybacked on the first
/// data, or sent after a short delay if there is none, so that a small operation costs one write
/// and one read per message. Small messages are sent at once, within an eager credit. A large
/// message is sent when the receiver has announced the operation, so that it is read into its final
/// place and memory stays bounded. A receive never waits (a property of every verified schedule),
/// so operations never block each other, in whatever order their frames arrive. Any error ends all
/// operations on all ranks: the first rank that detects it sends the cause to the others.
///
/// With several streams to a peer (rails), large messages are striped over them, segment by segment
/// (Outbox). A rail fails if it breaks, or makes no progress while bytes arrive from the peer on
/// another rail; its unacknowledged frames are retransmitted over the others. A rail that did not
/// break is used again once it delivers. If the last rail fails, the peer is lost.
///
/// A call reads and writes at most a budget (kBytesPerCall) per stream, so that the executor's lock
/// is held briefly, however fast the peer is. The remaining work is deferred to on_timer(), which
/// is then due at once.
///
/// Not thread-safe.
class Executor final : private Outbox::Observer, private RailFailover::Host {
 public:
  Executor(Rank rank, int ranks, const ExecutorOptions& options, net::Transport& transport,
           Time now);
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Starts an operation. May call its completion before returning.
  void post(OperationRequest request, Time now);

  /// Starts several operations, in this order, before anything is written, so that their frames for
  /// one peer share system calls.
  void post(std::vector<OperationRequest> requests, Time now);

  void on_readable(net::StreamId stream, Time now);
  void on_writable(net::StreamId stream, Time now);

  /// Reads from the streams on which the next messages are expected, without a readiness event.
  /// Returns true if any bytes arrived. Cheaper than poll() for a caller that expects data soon. It
  /// detects neither the end of other streams nor writability, so the caller must also poll for
  /// events from time to time.
  bool read_awaited(Time now);

  /// Called before the caller sleeps until an event: tells the transport how many bytes are worth a
  /// wake-up (Transport::expect).
  void prepare_to_sleep();

  /// Called when next_timer() is reached. Calling it earlier or later does no harm.
  void on_timer(Time now);
  Time next_timer() const;

  /// Fails all operations, on this rank and on the peers.
  void abort(Error error);

  /// Returns true if peers may need this rank to complete an operation in flight. Receives of
  /// messages that no peer has announced do not count.
  bool is_needed() const;

  /// Starts a graceful shutdown: tells the peers that this rank leaves. Called when is_needed() is
  /// false. The remaining receives fail with `why`, on this rank only. `failure`: why this rank
  /// leaves early, such as "after an exception: ..."; "" if it does not.
  void send_goodbye(const Error& why, const std::string& failure = "");

  /// Returns true if all queued frames have been written to the transport; with several rails, if
  /// they have been delivered.
  bool flushed();

  /// Returns the first error, if any. It failed all operations, and fails later ones.
  const std::optional<Error>& error() const { return state_.error; }

  std::size_t in_flight() const { return in_flight_.all().size() + unmatched_.size(); }

  /// Bytes written to the transport.
  struct Traffic {
    std::size_t payload_bytes = 0;  ///< Message payloads only, as the schedules require.
    std::size_t total_bytes = 0;    ///< Including frame headers and control frames.
  };
  Traffic traffic() const;

 private:
  // Operations.
  void start(OperationRequest request);
  void launch(OperationRequest request);
  void announce(InFlightOperation& flight);
  bool needs_immediate_announcement(const InFlightOperation& flight,
                                    const CompiledProgram::Exchange& exchange) const;
  void announce_if_credit_low(Peer& to);
  bool accept_announcement(InFlightOperation& flight, Rank peer, const Fingerprint& theirs);
  void replay(InFlightOperation& flight);
  void advance(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin, std::size_t end,
               const VerifiedPayload& payload = {});
  void route(InFlightOperation& flight, schedule::OpIndex by = 0,
             const VerifiedPayload& payload = {});
  void finish_if_complete(InFlightOperation& flight);
  void release_barriers();
  void match_receives();
  Rank first_sender(const OperationRequest& receive) const;
  void receive_from(Rank peer, OperationRequest receive);
  void receive_from_self(const OperationRequest& receive);

  // Frames.
  Result<PayloadSink> begin_frame(Rail& rail, const net::FrameHeader& header);
  Status complete_frame(Rail& rail, const net::FrameHeader& header);
  Status complete_data(Rail& rail, const net::FrameHeader& header);
  VerifiedPayload forwardable_payload(const Rail& rail, const Operation& operation,
                                      schedule::OpIndex index,
                                      const net::FrameHeader& header) const;
  Status on_announcement(Rail& rail, const net::FrameHeader& header);
  void on_abort(Rail& rail, const net::FrameHeader& header);
  void on_goodbye(Rail& rail, const net::FrameHeader& header);
  void on_ping(Rail& rail, const net::FrameHeader& header);
  void check_departed();
  void sent(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
            std::size_t end) override;

  // Streams.
  class Frames;

  Peer& peer(Rank rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  Rail& rail(net::StreamId stream);
  std::size_t read(Rail& rail, std::size_t budget);
  std::size_t read_copy(Rail& rail, std::size_t budget);
  static Inbox::Reading stale_reading(const Rail& rail, Bytes shared);
  std::size_t read_in_place(Rail& rail, std::size_t budget);
  void defer_reading(Rail& rail);
  void resume_deferred();
  void mark_corrupt(Rail& rail, const Error& error);
  void collect_awaited(bool all);
  void mark_dirty(Rank rank) override;
  void flush_dirty();
  bool flush_rails(Peer& to);
  void on_disconnect(net::StreamId stream, const Error& error);
  void on_peer_lost(Rank rank, const Error& error) override;
  void read_all(Rail& rail) override;

  // Ends and time.
  void send_goodbye_on(const Rail& rail) override;
  void fail(ErrorKind kind, const std::string& message) override;
  void fail_because_of(Rank cause, ErrorKind kind, const std::string& message);
  void fail(ErrorKind kind, const std::string& message, Rank origin);
  void send_abort(const Error& error, Rank origin);
  void flush_all_announcements();
  void check_deadlines(Time now);
  void check_silence(Time now);

  Rank rank_;
  ExecutorOptions options_;
  net::Transport& transport_;
  ExecutorState state_;
  Peers peers_;
  std::vector<Rank> dirty_;  ///< Peers to which frames may have to be written.
  bool flushing_ = false;
  int departed_ = 0;  ///< Peers that have sent goodbye.
  InFlightTable in_flight_;
  int held_ = 0;  ///< Barriers in flight that wait for earlier collectives.
  /// Receives from any rank or from this one that no message matches yet.
  std::deque<OperationRequest> unmatched_;
  SelfMessages self_messages_;
  EarlyArrivals early_;
  Liveness liveness_;
  RailFailover failover_;
  Time earliest_deadline_ = Time::max();
  std::vector<net::StreamId> unread_;  ///< Streams with deferred reads: the budget was spent.
  std::vector<Rank> unwritten_;        ///< Peers with deferred writes, likewise.
  Time announce_at_ = Time::max();     ///< Deadline of announcements to be piggybacked.
  std::unique_ptr<std::byte[]> receive_buffer_;
  std::vector<schedule::OpIndex> woken_;
  std::vector<Rank> awaited_;  ///< Scratch of read_awaited().
  std::uint64_t round_ = 0;
};

}  // namespace gradwire::engine

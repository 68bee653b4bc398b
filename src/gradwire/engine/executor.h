#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/engine/executor_state.h"
#include "gradwire/engine/links/links.h"
#include "gradwire/engine/operations/operations.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

struct ExecutorOptions {
  OutboxLimits limits;
  std::size_t receive_buffer_bytes = 256 * 1024;
  Duration dead_peer_timeout = std::chrono::seconds(5);
  FailureDomain domain = FailureDomain::job;
  /// Called with messages for the user that are not errors of all operations: a rail failed or
  /// recovered; with FailureDomain::pair, a peer failed.
  std::function<void(const std::string&)> on_warning;
  /// Called once, when all operations have failed for a cause that this rank knows first hand: it
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
/// so operations never block each other, in whatever order their frames arrive. Any error ends the
/// operations of its failure domain: the first rank that detects it sends the cause to the others.
///
/// With several streams to a peer (rails), large messages are striped over them, segment by segment
/// (Outbox). A rail fails if it breaks, or makes no progress while bytes arrive from the peer on
/// another rail; its unacknowledged frames are retransmitted over the others. A rail that did not
/// break is used again once it delivers. If the last rail fails, the peer is lost.
///
/// It has two parts, Links (streams, rails, frames) and Operations (programs, messages,
/// completions), and itself decides what ends with a failure. Not thread-safe.
class Executor final : private Links::Handler {
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
  /// Fails the operations with one peer, here and there. Requires FailureDomain::pair.
  void abort_with(Rank peer, const Error& error);

  /// Returns true if peers may need this rank to complete an operation in flight. Receives of
  /// messages that no peer has announced do not count.
  bool is_needed() const { return operations_.is_needed(); }

  /// Starts a graceful shutdown: tells the peers that this rank leaves. Called when is_needed() is
  /// false. The remaining receives fail with `why`, on this rank only. `failure`: why this rank
  /// leaves early, such as "after an exception: ..."; "" if it does not.
  void send_goodbye(const Error& why, const std::string& failure = "");

  /// Returns true if all queued frames have been written to the transport; with several rails, if
  /// they have been delivered.
  bool flushed() { return links_.flushed(); }

  /// Returns the first error that failed all operations, if any. It fails later ones too.
  const std::optional<Error>& error() const { return state_.error; }

  /// Changes when a failure has ended operations: all, or those with one peer.
  int failures() const { return links_.gone() + (state_.error ? 1 : 0); }

  std::size_t in_flight() const { return operations_.count(); }

  /// Bytes written to the transport.
  struct Traffic {
    std::size_t payload_bytes = 0;  ///< Message payloads only, as the schedules require.
    std::size_t total_bytes = 0;    ///< Including frame headers and control frames.
  };
  Traffic traffic() const;

 private:
  // Links::Handler
  Result<PayloadSink> begin_frame(Rail& rail, const net::FrameHeader& header) override;
  Status complete_frame(Rail& rail, const net::FrameHeader& header) override;
  void sent(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin,
            std::size_t end) override;
  void on_peer_lost(Rank rank, const Error& error) override;
  void send_goodbye_on(const Rail& rail) override;
  void on_rail_drained(net::StreamId stream) override { operations_.on_rail_drained(stream); }
  void on_rail_resumed(net::StreamId stream) override { operations_.on_rail_resumed(stream); }
  void fail(const Failure& failure) override;

  void on_abort(Rail& rail, const net::FrameHeader& header);
  void on_goodbye(Rail& rail, const net::FrameHeader& header);
  void on_ping(Rail& rail, const net::FrameHeader& header);
  void fail_all(const Error& error, Rank origin);
  void fail_with(Peer& peer, const Error& error, Rank origin);

  Rank rank_;
  ExecutorOptions options_;
  ExecutorState state_;
  Links links_;
  Operations operations_;
  std::uint64_t reads_ = 0;  ///< Number of calls of read_awaited().
};

}  // namespace gradwire::engine

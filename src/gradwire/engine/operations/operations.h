#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/engine/executor_state.h"
#include "gradwire/engine/links/links.h"
#include "gradwire/engine/operations/early_arrivals.h"
#include "gradwire/engine/operations/in_flight_table.h"
#include "gradwire/engine/operations/self_messages.h"

namespace gradwire::engine {

/// The operations of one rank, from post() until their completions are called. Knows programs and
/// messages, but no streams: it queues messages in the peers' outboxes.
///
/// Invariant: each posted operation's completion is called once, and not before all that its
/// program depends on; its memory is not accessed afterwards. Not thread-safe.
class Operations {
 public:
  struct Options {
    OutboxLimits limits;
    FailureDomain domain = FailureDomain::job;
  };

  /// All references must outlive this.
  Operations(Rank rank, int ranks, const Options& options, const ExecutorState& state, Links& links,
             FailureHandler& failures);

  /// Starts an operation. May call its completion before returning.
  void post(OperationRequest request);

  // Frames.
  Result<PayloadSink> begin_data(Rail& rail, const net::FrameHeader& header);
  void complete_data(Rail& rail, const net::FrameHeader& header);
  /// Fails with corrupted.
  Status on_announcement(Rail& rail, const net::FrameHeader& header);
  /// Bytes `begin` to `end` of message `op` have been sent or received. `payload`: the received
  /// bytes, if others may be sent with their checksum.
  void advance(InFlightOperation& flight, schedule::OpIndex op, std::size_t begin, std::size_t end,
               const VerifiedPayload& payload = {});
  /// See Links::Handler.
  void on_rail_drained(net::StreamId stream) { early_.abandon(stream); }
  void on_rail_resumed(net::StreamId stream);

  /// A peer has left. Fails the operations that need one that has.
  void check_departed();
  /// Fails all operations. Their error says what their buffers contain.
  void fail_all(const Error& error);
  /// Fails the operations with a peer, and receives from any rank that no peer is left for.
  void fail_with(Rank rank, const Error& error);
  /// This rank leaves: fails the receives that no peer has announced.
  void leave(const Error& why);

  /// Called at next_timer().
  void on_timer(Time now);
  Time next_timer() const { return std::min(earliest_deadline_, announce_at_); }

  /// See Executor.
  bool is_needed() const;
  std::size_t count() const { return in_flight_.all().size() + unmatched_.size(); }
  const InFlightTable& in_flight() const { return in_flight_; }

  /// Returns the senders of the operations' next messages; `all`: all peers with missing messages.
  const std::vector<Rank>& awaited(bool all);
  /// Returns an operation that needs the peer; null if there is none.
  const Operation* first_needing(Rank rank) const;

 private:
  void launch(OperationRequest request);
  void announce(InFlightOperation& flight);
  bool needs_immediate_announcement(const InFlightOperation& flight,
                                    const CompiledProgram::Exchange& exchange) const;
  void announce_if_credit_low(Peer& to);
  bool accept_announcement(InFlightOperation& flight, Rank from, const Fingerprint& theirs);
  void replay(InFlightOperation& flight);
  void route(InFlightOperation& flight, schedule::OpIndex by = 0,
             const VerifiedPayload& payload = {});
  void finish_if_complete(InFlightOperation& flight);
  void release_barriers();
  void match_receives();
  Rank first_sender(const OperationRequest& receive) const;
  void receive_from(Rank peer, OperationRequest receive);
  void receive_from_self(const OperationRequest& receive);
  VerifiedPayload forwardable_payload(const Rail& rail, const Operation& operation,
                                      schedule::OpIndex index,
                                      const net::FrameHeader& header) const;
  const InFlightOperation* first_with_departed(Rank& departed) const;
  void fail_receives_without_sender();
  void fail_receive(std::size_t index, const Error& error);
  void flush_announcements();
  void check_deadlines(Time now);
  const InFlightOperation* first_late(Time now);
  bool is_over(Rank peer) const { return state_.error || links_.peer(peer).error; }

  Rank rank_;
  Options options_;
  const ExecutorState& state_;
  Links& links_;
  FailureHandler& failures_;
  InFlightTable in_flight_;
  int held_ = 0;  ///< Barriers in flight that wait for earlier collectives.
  /// Receives from any rank or from this one that no message matches yet.
  std::deque<OperationRequest> unmatched_;
  SelfMessages self_messages_;
  EarlyArrivals early_;
  Time earliest_deadline_ = Time::max();
  Time announce_at_ = Time::max();  ///< Deadline of announcements to be piggybacked.
  std::vector<schedule::OpIndex> woken_;
  std::vector<Rank> awaited_;  ///< Result of awaited().
  std::uint64_t round_ = 0;    ///< Number of calls of awaited().
};

}  // namespace gradwire::engine

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/engine/early_arrivals.h"
#include "gradwire/engine/flight_table.h"
#include "gradwire/engine/inbox.h"
#include "gradwire/engine/liveness.h"
#include "gradwire/engine/outbox.h"
#include "gradwire/engine/rail_notice.h"
#include "gradwire/net/transport.h"

namespace gradwire {

struct ExecutorOptions {
  OutboxLimits limits;
  std::size_t receive_buffer_bytes = 256 * 1024;
  Duration dead_peer_timeout = std::chrono::seconds(5);
  /// Receives news for the user that are no error: a rail has failed, or is back.
  std::function<void(const std::string&)> notice;
};

/// One rank's protocol engine: runs the programs of the operations in flight over the streams to
/// the peers. A state machine: it is handed events and the time, calls a transport that never
/// blocks, and tells Completions how operations ended. It owns no thread and reads no clock, and
/// never mentions an algorithm; over sockets and over simulated streams it is the same code.
///
/// Protocol. A rank announces each operation it has posted, with its fingerprint, to every rank
/// with which it exchanges messages: at once to those that wait for it before they send large
/// messages, to the others together with the first data (or a little later, if there is none), so
/// that a small operation costs one write and one read a message. Small messages travel at once;
/// larger ones once the other side has announced the operation too, so that they land in their
/// final place and memory stays bounded. A receive never waits (a property of every verified
/// schedule), so operations never block each other, whatever order their frames come in. Any error
/// ends them all, on all ranks: the first rank that notices tells the others why.
///
/// With several streams to a peer (rails), large messages are striped over them, segment by segment
/// (Outbox). A rail fails if it breaks, or makes no progress while the peer is heard on another;
/// its unacknowledged frames are retransmitted over the others. A rail that did not break is put
/// into use again when it delivers. The loss of the last rail is the loss of the peer.
///
/// A call reads and writes no more than a budget (kBytesPerCall) on each stream, so that whoever
/// holds the executor's lock holds it briefly, however fast the peer is. The rest is put off to
/// on_timer(), which is due at once.
///
/// Not thread-safe.
class Executor final : private Outbox::Listener {
 public:
  Executor(Rank rank, int ranks, const ExecutorOptions& options, Transport& transport, Time now);
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Starts an operation. Its completion may be called before this returns.
  void post(OperationRequest request, Time now);

  /// Starts several, in this order, before anything is written, so that what they have for the same
  /// peer shares system calls.
  void post(std::vector<OperationRequest> requests, Time now);

  void on_readable(StreamId stream, Time now);
  void on_writable(StreamId stream, Time now);

  /// Reads from where the next messages should come, without having been told that there is
  /// anything: cheaper than asking which stream is readable, for who waits for something that comes
  /// soon. Whether anything came. Sees neither ends of other streams nor room for what could not be
  /// written: events must be asked for now and then.
  bool read_awaited(Time now);

  /// To be called before sleeping until an event: tells the transport how much is worth waking up
  /// for.
  void rest();

  /// To be called when next_timer() has come (being early or late does no harm).
  void on_timer(Time now);
  Time next_timer() const;

  /// Ends all operations, here and on the peers.
  void abort(Error error);

  /// Returns true if peers may need this rank to complete what is in flight: all of it but receives
  /// of messages that no peer has announced.
  bool is_needed() const;

  /// Tells the peers that this rank leaves. To be called when is_needed() is false: the receives
  /// that are left fail with `why`, here alone.
  void say_goodbye(const Error& why);

  /// Whether everything that was to be sent has been handed to the transport; with several rails,
  /// whether it has been delivered.
  bool flushed();

  /// Why nothing works any more, once something has failed.
  const std::optional<Error>& error() const { return error_; }

  std::size_t in_flight() const { return flights_.all().size() + from_any_.size(); }

  /// What has been handed to the transport so far.
  struct Traffic {
    std::size_t payload_bytes = 0;  ///< Of messages alone: what the schedules ask for.
    std::size_t total_bytes = 0;    ///< Frame headers and control frames too.
  };
  Traffic traffic() const;

 private:
  struct Peer;
  struct Rail;

  // Operations.
  void start(OperationRequest request);
  void launch(OperationRequest request);
  void announce(Flight& flight);
  bool must_hear_at_once(const Flight& flight, const CompiledProgram::Exchange& exchange) const;
  void speak_if_awaited(Peer& to);
  bool accept_announcement(Flight& flight, Rank peer, const Fingerprint& theirs);
  void replay(Flight& flight);
  void pass(Flight& flight, OpIndex op, std::size_t begin, std::size_t end,
            const Arrived& arrived = {});
  void route(Flight& flight, OpIndex by = 0, const Arrived& arrived = {});
  void finish_if_complete(Flight& flight);
  void release_barriers();
  void match_any();
  Rank first_offer(int tag) const;

  // Frames.
  Result<Landing> begin_frame(Rail& rail, const FrameHeader& header);
  Status complete_frame(Rail& rail, const FrameHeader& header);
  Status complete_data(Rail& rail, const FrameHeader& header);
  Arrived as_it_came(const Rail& rail, const Operation& operation, OpIndex index,
                     const FrameHeader& header) const;
  Status hear_announcement(Rail& rail, const FrameHeader& header);
  void hear_abort(Rail& rail, const FrameHeader& header);
  void hear_goodbye(Rail& rail, const FrameHeader& header);
  Status on_rail_notice(Rail& over, const FrameHeader& header);
  void on_ping(Rail& rail, const FrameHeader& header);
  void check_departed();
  void sent(Flight& flight, OpIndex op, std::size_t begin, std::size_t end) override;

  // Streams.
  Peer& peer(Rank rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  Rail& rail(StreamId stream);
  std::size_t read(Rail& rail, std::size_t budget);
  std::size_t read_copy(Rail& rail, std::size_t budget);
  static Inbox::Reading stale_reading(const Rail& rail, Bytes shared);
  std::size_t read_in_place(Rail& rail, std::size_t budget);
  void put_off_reading(Rail& rail);
  void resume_put_off();
  bool still_reads(const Rail& rail) const;
  void garble(Rail& rail, const Error& error);
  void collect_awaited(bool all);
  void look_ahead(Peer& from) const;
  void mark_dirty(Rank rank);
  void flush_dirty();
  void lose(StreamId stream, const Error& error);
  void lose_peer(Rank rank, const Error& error);

  // Rails.
  void break_rail(Rail& rail, const Error& why);
  void fail_rail(Rail& rail, const Error& why);
  void send_rail_notice(const Rail& rail);
  void on_rail_failed(Rail& rail, const RailNotice& notice);
  void on_suspect(Rail& rail, const RailNotice& notice);
  void note_answer(Peer& peer) const;
  void drain_failed();
  void reconsider(Rail& rail);
  void drain(Rail& rail);
  void recover(Peer& peer, Rail& rail);
  void resume(Rail& rail);
  bool resume_probed(Peer& peer);
  void check_rails(Time now);
  void check_rail(Peer& peer, Rail& rail, Time now);
  void suspect(Peer& peer, const Rail& rail);
  void watch_rails(const Peer& peer);
  void report_failed(const Rail& rail);

  // Ends and time.
  void say_goodbye_on(const Rail& rail);
  void fail(ErrorKind kind, const std::string& message, Rank origin);
  void tell_peers(const Error& error, Rank origin);
  void speak_all();
  void check_deadlines(Time now);
  void check_silence(Time now);

  Rank rank_;
  ExecutorOptions options_;
  Transport& transport_;
  Time now_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< Null at our own rank.
  std::vector<Rank> dirty_;                   ///< Peers for whom there may be something to send.
  bool flushing_ = false;
  bool said_goodbye_ = false;
  int departed_ = 0;  ///< Peers that have said goodbye.
  FlightTable flights_;
  int held_ = 0;  ///< Barriers in flight that wait for earlier collectives.
  std::deque<OperationRequest> from_any_;  ///< Receives for which nothing has been announced.
  EarlyArrivals early_;
  Liveness liveness_;
  Time earliest_deadline_ = Time::max();
  Time check_rails_at_ = Time::max();
  std::map<int, Time> reported_failed_;  ///< By rail: when its last failure was reported.
  std::map<int, Time> reported_back_;    ///< By rail: when its last recovery was reported.
  std::vector<StreamId> draining_;       ///< Failed rails to which the peer writes no more data.
  std::vector<StreamId> suspected_;      ///< Rails that a peer asks this rank to fail.
  std::vector<StreamId> unread_;  ///< Streams whose reading was put off when the budget was spent.
  std::vector<Rank> unwritten_;   ///< Peers for whom writing was put off, likewise.
  Time speak_at_ = Time::max();   ///< When announcements that wait for company have waited enough.
  std::optional<Error> error_;
  std::unique_ptr<std::byte[]> receive_buffer_;
  std::vector<OpIndex> woken_;
  std::vector<Rank> awaited_;  ///< Scratch of read_awaited().
  std::uint64_t round_ = 0;
};

}  // namespace gradwire

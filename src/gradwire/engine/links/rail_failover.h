#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/engine/executor_state.h"
#include "gradwire/engine/links/peer.h"
#include "gradwire/engine/links/rail_notice.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

/// Failover of one of several rails to a peer, and its recovery.
///
/// Failover. No frame may be lost with the rail, and none may be delivered twice. The rank that
/// detects the failure stops writing to the rail and sends a notice over another one; the peer then
/// stops too. Each side now knows that the other writes nothing more and counts no more bytes as
/// acknowledged. So a side that drains the rail, that is reads all bytes that have arrived, has
/// received at least every frame that the other no longer keeps. It reports the number of frames,
/// and the other side retransmits the frames behind them over its first rail.
///
/// Recovery. A rail that only makes no progress keeps its connection. Bytes written before the
/// failure still arrive if the link comes back. Each notice says how many bytes its sender has
/// written, so the receiver discards exactly these; behind them the stream carries frames numbered
/// from 0 again. After a back-off each side sends a ping as a probe. A side puts the rail into use
/// when its probe is acknowledged and the peer's has arrived: the peer has then drained and
/// retransmitted too. Failures of a rail are numbered (generation), and notices of earlier ones are
/// ignored.
///
/// Invariant: of every frame to a peer, exactly one copy is handled there, whichever rails fail.
class RailFailover {
 public:
  using Warning = std::function<void(const std::string&)>;

  /// The functions of the links that failover needs.
  class Host : public FailureHandler {
   public:
    /// Frames may have to be written to this peer.
    virtual void mark_dirty(Rank rank) = 0;
    /// Reads all bytes that have arrived on a rail.
    virtual void read_all(Rail& rail) = 0;
    virtual void send_goodbye_on(const Rail& rail) = 0;
    /// The last rail to a peer has failed.
    virtual void on_peer_lost(Rank rank, const Error& error) = 0;
    /// A failed rail is drained: its incomplete frame is lost, or will be sent on another rail.
    virtual void on_drained(net::StreamId stream) = 0;
    /// A rail that had failed carries data again; the peer may have missed announcements on it.
    virtual void on_resumed(net::StreamId stream) = 0;
  };

  /// All references must outlive this. `warn`, if not null, gets a message when a rail fails or
  /// recovers.
  RailFailover(Rank rank, const ExecutorState& state, Peers& peers, net::Transport& transport,
               Host& host, Warning warn);

  /// A stream to a peer with several rails has ended.
  void on_broken(Rail& rail, const Error& why);

  /// A notice about a rail has arrived, over another one. Fails with corrupted.
  Status on_notice(Rail& over, const net::FrameHeader& header);

  /// Bytes have arrived from a peer that may have been pinged.
  void on_answer(Peer& peer) const;

  /// Drains and fails the rails that notices have named. Not done when the notice arrives, because
  /// the frame that is being read uses the same buffer.
  void settle();

  /// Schedules the next check if bytes of a rail are not acknowledged, or if a failed one may
  /// recover.
  void watch(const Peer& peer);

  /// Looks for rails without progress, and probes failed ones. Called at next_check().
  void check(Time now);
  Time next_check() const { return next_check_; }

 private:
  Peer& peer(Rank rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  Rail& rail(net::StreamId stream) const;

  void fail_over(Rail& rail, const Error& why);
  void fail_if_silent(Rail& rail);
  void send_notice(const Rail& rail);
  void on_rail_failed(Rail& rail, const RailNotice& notice);
  void on_suspect(Rail& rail, const RailNotice& notice);
  void drain(Rail& rail);
  void recover(Peer& peer, Rail& rail);
  void resume(Rail& rail);
  bool resume_probed(Peer& peer);
  bool is_over(Rank rank) const { return state_.error || peer(rank).error; }
  void report(const Rail& rail);
  void check_rail(Peer& peer, Rail& rail, Time now);
  void suspect(Peer& peer, const Rail& rail);

  Rank rank_;
  const ExecutorState& state_;
  Peers& peers_;
  net::Transport& transport_;
  Host& host_;
  Warning warn_;
  Time next_check_ = Time::max();
  std::map<int, Time> reported_failed_;   ///< Per rail: time of the last reported failure.
  std::map<int, Time> reported_back_;     ///< Per rail: time of the last reported recovery.
  std::vector<net::StreamId> draining_;   ///< Failed rails to which the peer writes no more data.
  std::vector<net::StreamId> suspected_;  ///< Rails that a peer asks this rank to fail.
};

}  // namespace gradwire::engine

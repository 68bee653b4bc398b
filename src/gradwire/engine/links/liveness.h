#pragma once

#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::engine {

/// Records when each peer was last heard from. Idle peers are pinged, so that silence means a dead
/// host or link.
class Liveness {
 public:
  Liveness(int ranks, Duration dead_after, Time now)
      : dead_after_(dead_after), last_check_(now), peers_(static_cast<std::size_t>(ranks)) {
    for (Peer& peer : peers_) peer = {now, now};
  }

  void on_received(Rank peer, Time now) {
    peers_[static_cast<std::size_t>(peer)].last_received = now;
  }
  void on_sent(Rank peer, Time now) { peers_[static_cast<std::size_t>(peer)].last_sent = now; }

  /// Five pings fit into the timeout after which a silent peer counts as dead.
  Duration interval() const { return dead_after_ / 5; }
  Time next_check() const { return last_check_ + interval(); }

  /// Called once next_check() is due. If this process itself was not running in the meantime
  /// (suspended, or starved), that time is not counted against any peer: frames may wait unread.
  void check(Time now);

  bool needs_ping(Rank peer, Time now) const {
    return now - peers_[static_cast<std::size_t>(peer)].last_sent >= interval();
  }
  bool is_dead(Rank peer, Time now) const {
    return now - peers_[static_cast<std::size_t>(peer)].last_received >= dead_after_;
  }

 private:
  struct Peer {
    Time last_received;
    Time last_sent;
  };

  Duration dead_after_;
  Time last_check_;
  std::vector<Peer> peers_;
};

}  // namespace gradwire::engine

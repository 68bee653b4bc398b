#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/bootstrap/gate.h"
#include "gradwire/bootstrap/rank_place.h"
#include "gradwire/bootstrap/start_watch.h"

namespace gradwire {

/// Connects this rank to all others, once over each rail, given their endpoints. It connects to
/// lower ranks and accepts connections from higher ranks, concurrently in one poll loop.
class MeshBuilder {
 public:
  struct Plan {
    Rank rank = 0;
    SharedSecret shared;            ///< With purpose mesh_purpose().
    std::vector<RankPlace> places;  ///< By rank; this rank listens at places[rank].
    bool encrypts = false;          ///< TLS on the connections; must be the same on every rank.
    /// For this time, refused connections may only mean that a rank changes its listener
    /// (bootstrap/shared_port.h); after it, that the rank is gone.
    Duration patience = Duration::zero();
    /// Reports failures of other ranks; may be null. Must outlive run().
    StartWatch* watch = nullptr;
  };

  MeshBuilder(Plan plan, Doors doors);

  /// Returns when all connections are established. Fails with timeout (names the missing ranks),
  /// disconnected (a rank that had joined is gone), refused, mismatch or system (out of file
  /// descriptors for too long). Also fails with errors of the watch.
  Status run(Deadline deadline, Duration timeout);

  /// Returns the connections by rank and rail; none to this rank itself.
  std::vector<std::vector<Socket>> take_sockets() { return std::move(sockets_); }

  /// Session keys of the connections, by rank and rail.
  const std::vector<std::vector<SessionKey>>& keys() const { return keys_; }

 private:
  struct Call {
    Rank to = 0;
    int rail = 0;
    std::unique_ptr<ClientHandshake> handshake;
    Time not_before = {};  ///< Set after a failed attempt.
    std::optional<Time> refused_since;
    std::optional<Time> short_since;  ///< Start of a shortage of file descriptors.
    std::size_t place = 0;
  };

  /// An established connection, while others are pending.
  struct Standing {
    Rank rank = 0;
    int rail = 0;
    std::size_t place = 0;
  };

  int ranks() const { return static_cast<int>(plan_.places.size()); }
  const RankPlace& place_of(Rank rank) const {
    return plan_.places[static_cast<std::size_t>(rank)];
  }
  const RailPlace& own_rail(int rail) const {
    return place_of(plan_.rank).rails[static_cast<std::size_t>(rail)];
  }
  Socket& socket_to(Rank rank, int rail) {
    return sockets_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(rail)];
  }
  void keep(Rank rank, int rail, Socket socket, const SessionKey& key);
  Verdict admit(const Claims& claims);
  void enter(Admitted admitted);
  bool complete() const;
  Deadline watch(PollSet& set, Deadline deadline);
  void watch_standing(PollSet& set);
  Status advance(const PollSet& set);
  Status advance_calls(const PollSet& set);
  Status look_at_standing(const PollSet& set);
  Status hear(const PollSet& set);
  Status begin(Call& call);
  Status wait_for_descriptors(Call& call, const Error& error);
  Status move_on(Call& call);
  bool may_come_back(Call& call) const;
  std::string interface_for(int rail, Rank peer, const SocketAddress& other);
  std::string missing_ranks() const;

  Plan plan_;
  std::vector<std::vector<Socket>> sockets_;
  std::vector<std::vector<SessionKey>> keys_;
  std::vector<Call> calls_;
  std::vector<Standing> standing_;
  /// Higher ranks that have connected, hung up, and may connect again.
  std::map<Rank, Time> hung_up_;
  std::size_t news_place_ = 0;
  Time next_look_ = {};
  bool warned_ = false;  ///< Packets leave by the wrong interface; warn once.
  Gate gate_;
};

/// Purpose of the connections between the ranks of a communicator.
std::string mesh_purpose(const std::string& scope);

}  // namespace gradwire

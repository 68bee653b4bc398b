#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/comm/rank_place.h"
#include "gradwire/comm/start_watch.h"
#include "gradwire/net/gate.h"

namespace gradwire {

/// Connects this rank to all others, once over each rail, when it is known where they listen: it
/// calls those below it and is called by those above, all at the same time in one poll loop.
class MeshBuilder {
 public:
  struct Plan {
    Rank rank = 0;
    SharedSecret shared;            ///< Of purpose mesh_purpose().
    std::vector<RankPlace> places;  ///< By rank; connections come in where places[rank] says.
    bool encrypts = false;          ///< What the connections will carry: the same on every rank.
    /// For how long a rank that refuses connections may just be changing who listens for it
    /// (net/shared_port.h); after that it has gone.
    Duration patience = Duration::zero();
    /// Where this rank hears that another one has failed; nullptr: nowhere. Must outlive run().
    StartWatch* watch = nullptr;
  };

  MeshBuilder(Plan plan, Doors doors);

  /// Returns when every connection stands. Errors: timeout (names the ranks that are missing),
  /// disconnected (a rank that was there has gone), refused, mismatch, system (too few descriptors
  /// for long), and those of the watch.
  Status run(Deadline deadline, Duration timeout);

  /// The connections, by rank and rail; none to this rank itself.
  std::vector<std::vector<Socket>> take_sockets() { return std::move(sockets_); }

  /// Their session keys.
  const std::vector<std::vector<SessionKey>>& keys() const { return keys_; }

 private:
  struct Call {
    Rank to = 0;
    int rail = 0;
    std::unique_ptr<ClientHandshake> handshake;
    Time not_before = {};  ///< After a failed attempt.
    std::optional<Time> refused_since;
    std::optional<Time> short_since;  ///< Of descriptors.
    std::size_t place = 0;
  };

  /// A connection that stands, while others are still made.
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
  std::map<Rank, Time> hung_up_;  ///< Ranks that have called, hung up, and may call again.
  std::size_t news_place_ = 0;
  Time next_look_ = {};
  bool warned_ = false;  ///< That packets leave by the wrong interface.
  Gate gate_;
};

/// What connections between the ranks of a communicator are for.
std::string mesh_purpose(const std::string& scope);

}  // namespace gradwire

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/bootstrap/start.h"

namespace gradwire::bootstrap {

/// Connects this rank to all others, once over each rail, given their endpoints. It connects to
/// lower ranks and accepts connections from higher ranks, concurrently in one poll loop.
class MeshBuilder {
 public:
  struct Plan {
    Rank rank = 0;
    SharedSecret shared;                  ///< With purpose mesh_purpose().
    std::vector<RankEndpoint> endpoints;  ///< By rank; this rank listens at endpoints[rank].
    bool encrypts = false;  ///< TLS on the connections; must be the same on every rank.
    /// For this time, refused connections may only mean that a rank changes its listener
    /// (bootstrap/mesh/shared_port.h); after it, that the rank is gone.
    Duration patience = Duration::zero();
    /// Reports failures of other ranks; may be null. Must outlive run().
    Start* start = nullptr;
  };

  MeshBuilder(const net::HostNetwork& network, Plan plan, Listeners listeners);

  /// Returns when all connections are established. Fails with timeout (names the missing ranks),
  /// disconnected (a rank that had joined is gone), refused, mismatch or system (out of file
  /// descriptors for too long). Also fails with errors of the start.
  Status run(net::Deadline deadline, Duration timeout);

  /// Returns the connections by rank and rail; none to this rank itself.
  std::vector<std::vector<net::Socket>> take_sockets() { return std::move(sockets_); }

  /// Session keys of the connections, by rank and rail.
  const std::vector<std::vector<net::SessionKey>>& keys() const { return keys_; }

 private:
  struct Attempt {
    Rank to = 0;
    int rail = 0;
    std::unique_ptr<ClientHandshake> handshake;
    Time not_before = {};  ///< Set after a failed attempt.
    std::optional<Time> refused_since;
    std::optional<Time> shortage_since;  ///< Start of a shortage of file descriptors.
    std::size_t poll_index = 0;
  };

  /// An established connection, while others are pending.
  struct Established {
    Rank rank = 0;
    int rail = 0;
    std::size_t poll_index = 0;
  };

  int ranks() const { return static_cast<int>(plan_.endpoints.size()); }
  const RankEndpoint& endpoint_of(Rank rank) const {
    return plan_.endpoints[static_cast<std::size_t>(rank)];
  }
  const RailEndpoint& own_rail(int rail) const {
    return endpoint_of(plan_.rank).rails[static_cast<std::size_t>(rail)];
  }
  net::Socket& socket_to(Rank rank, int rail) {
    return sockets_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(rail)];
  }
  void keep(Rank rank, int rail, net::Socket socket, const net::SessionKey& key);
  Verdict admit(const Claims& claims);
  void add_connection(AuthenticatedConnection connection);
  void warn_of_nat(const Claims& claims, const net::SocketAddress& from);
  bool complete() const;
  net::Deadline watch(net::PollSet& set, net::Deadline deadline);
  void watch_established(net::PollSet& set);
  Status advance(const net::PollSet& set);
  Status advance_outgoing(const net::PollSet& set);
  Status check_established(const net::PollSet& set);
  Status check_watch(const net::PollSet& set);
  Status begin(Attempt& attempt);
  Status wait_for_descriptors(Attempt& attempt, const Error& error);
  Status advance_handshake(Attempt& attempt);
  bool may_retry(Attempt& attempt) const;
  std::string interface_for(int rail, Rank peer, const net::SocketAddress& other);
  std::string missing_ranks() const;

  const net::HostNetwork& network_;
  const Clock& clock_;
  Plan plan_;
  std::vector<std::vector<net::Socket>> sockets_;
  std::vector<std::vector<net::SessionKey>> keys_;
  std::vector<Attempt> outgoing_;
  std::vector<Established> established_;
  /// Higher ranks that have connected, hung up, and may connect again.
  std::map<Rank, Time> disconnected_;
  std::size_t watch_index_ = 0;
  Time next_check_ = {};
  bool warned_ = false;        ///< Packets leave by the wrong interface; warn once.
  std::set<Rank> behind_nat_;  ///< Ranks that have been warned of.
  HandshakeServer handshakes_;
};

/// Purpose of the connections between the ranks of a communicator.
std::string mesh_purpose(const std::string& scope);

}  // namespace gradwire::bootstrap

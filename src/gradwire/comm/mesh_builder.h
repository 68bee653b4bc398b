#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/comm/rendezvous.h"
#include "gradwire/net/gate.h"

namespace gradwire {

/// Connects this rank to all others, once it is known where they listen: it calls those below it
/// and is called by those above, all at the same time in one poll loop.
class MeshBuilder {
 public:
  /// `places`, one a rank, of which places[rank] has the address that `listener` listens on.
  MeshBuilder(Rank rank, std::string secret, std::string scope, std::vector<RankPlace> places,
              Socket listener);

  /// Returns when every connection stands. Errors: timeout (names the ranks that are missing),
  /// disconnected (a rank that was there has gone), refused, mismatch, system.
  Status run(Deadline deadline, Duration timeout);

  /// The connections, by rank; this rank's own is not valid.
  std::vector<Socket> take_sockets() { return std::move(sockets_); }

 private:
  struct Call {
    Rank to = 0;
    std::unique_ptr<ClientHandshake> handshake;
    Time not_before = {};  ///< After a failed attempt.
    std::size_t place = 0;
  };

  int ranks() const { return static_cast<int>(places_.size()); }
  bool connected(Rank rank) const { return sockets_[static_cast<std::size_t>(rank)].valid(); }
  Verdict admit(const Claims& claims);
  void enter(Admitted admitted);
  bool complete() const;
  Deadline watch(PollSet& set, Deadline deadline);
  Status advance_calls(const PollSet& set);
  Status begin(Call& call);
  Status move_on(Call& call);
  std::string missing_ranks() const;

  Rank rank_;
  SharedSecret shared_;
  std::vector<RankPlace> places_;
  std::vector<Socket> sockets_;
  std::vector<Call> calls_;
  Gate gate_;
};

}  // namespace gradwire

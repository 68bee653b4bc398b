#pragma once

#include <string>
#include <vector>

#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/bootstrap/start_watch.h"
#include "gradwire/bootstrap/store.h"
#include "gradwire/net/deadline.h"

namespace gradwire::bootstrap {

/// Rendezvous: the exchange of addresses over a store. Each rank writes its endpoint under
/// "<prefix>place/<nonce>". Rank 0 gathers all and publishes them in a few values, so that no
/// rank has to read one value per peer.
///
/// A store may still contain the keys of an earlier rendezvous with the same scope. (A launcher
/// that restarts its workers keeps the store, and counts restarts separately on each host.) Hence
/// each rendezvous has its own generation. A rank writes a fresh nonce to
/// "<scope>knock/<rank>". Rank 0 answers under that nonce, in "<scope>room/<nonce>", with the
/// generation, also a fresh nonce. A process that replaces one that died while others wait writes
/// another nonce, so rank 0 uses the endpoint of the live process.
class StoreRendezvous {
 public:
  struct Identity {
    Rank rank = 0;
    int world_size = 1;
    std::string where;  ///< "10.0.0.1:29500", for error messages.
    Duration timeout = {};
  };

  StoreRendezvous(Store& store, const std::string& scope, Identity self);

  /// Gets the generation from rank 0; must be called first. Fails with timeout (names the missing
  /// ranks) or disconnected.
  Status join(net::Deadline deadline);

  /// Returns the secret that rank 0 creates and writes to the store.
  Result<std::string> share_secret(net::Deadline deadline);

  /// Writes this rank's endpoint and returns those of all ranks. On rank 0, it tells `watch` that
  /// all have joined. Fails with timeout (names all missing ranks), disconnected, corrupted,
  /// invalid_argument (two processes have this rank), mismatch (of world sizes), or an error of
  /// `watch`.
  Result<std::vector<RankEndpoint>> exchange(const RankEndpoint& mine, StartWatch& watch,
                                             net::Deadline deadline);

  /// Prefix of this rendezvous's keys, unique to it. Valid after join().
  const std::string& prefix() const { return prefix_; }

 private:
  /// Rank 0's state for another rank.
  struct Joiner {
    std::string nonce;     ///< Its latest nonce; empty: none seen.
    std::string endpoint;  ///< The endpoint it wrote under that nonce; empty: none seen.
  };
  std::string nonce_key(Rank rank) const;
  std::string generation_key(const std::string& nonce) const;
  std::string endpoint_key(const std::string& nonce) const;
  std::string part_key(std::size_t part) const;
  Status admit(Rank rank, Joiner& joiner, Duration patience);
  Status admit_all(std::vector<Joiner>& joiners, net::Deadline deadline);
  Result<bool> are_unchanged(const std::vector<Joiner>& joiners);
  Result<std::vector<std::string>> gather(const std::string& mine, StartWatch& watch,
                                          net::Deadline deadline);
  Status publish(const std::vector<std::string>& endpoints);
  Result<std::vector<std::string>> fetch(net::Deadline deadline);
  bool has_joined(Rank rank);
  Error missing();

  Store& store_;
  std::string scope_;
  std::string nonce_;       ///< Nonce of this rank.
  std::string generation_;  ///< Generation; empty until rank 0 has answered.
  std::string prefix_;      ///< Prefix of the keys of this generation.
  Identity self_;
};

}  // namespace gradwire::bootstrap

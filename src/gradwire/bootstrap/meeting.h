#pragma once

#include <string>
#include <vector>

#include "gradwire/bootstrap/rank_place.h"
#include "gradwire/bootstrap/start_watch.h"
#include "gradwire/bootstrap/store.h"
#include "gradwire/net/deadline.h"

namespace gradwire {

/// Rendezvous: the exchange of addresses over a store. Each rank writes its place under
/// "<prefix>place/<word>". Rank 0 gathers the places and publishes them in a few values, so that no
/// rank has to read one value per peer.
///
/// A store may still contain the keys of an earlier rendezvous with the same scope. (A launcher
/// that restarts its workers keeps the store, and counts restarts separately on each host.) Hence
/// each rendezvous has its own generation ("room"). A rank writes a fresh nonce ("word") to
/// "<scope>knock/<rank>". Rank 0 answers under that nonce, in "<scope>room/<word>", with the
/// generation, also a fresh nonce. A process that replaces one that died while others wait writes
/// another nonce, so rank 0 uses the place of the live process.
class Meeting {
 public:
  struct Who {
    Rank rank = 0;
    int world_size = 1;
    std::string where;  ///< "10.0.0.1:29500", for error messages.
    Duration timeout = {};
  };

  Meeting(Store& store, const std::string& scope, Who who);

  /// Gets the generation from rank 0; must be called first. Fails with timeout (names the missing
  /// ranks) or disconnected.
  Status enter(Deadline deadline);

  /// Returns the secret that rank 0 creates and writes to the store.
  Result<std::string> share_secret(Deadline deadline);

  /// Writes this rank's place and returns the places of all ranks. On rank 0, it tells `watch` that
  /// all have joined. Fails with timeout (names all missing ranks), disconnected, corrupted,
  /// invalid_argument (two processes have this rank), mismatch (of world sizes), or an error of
  /// `watch`.
  Result<std::vector<RankPlace>> exchange(const RankPlace& mine, StartWatch& watch,
                                          Deadline deadline);

  /// Prefix of this rendezvous's keys, unique to it. Valid after enter().
  const std::string& prefix() const { return prefix_; }

 private:
  /// Rank 0's state for another rank.
  struct Guest {
    std::string word;   ///< Its latest nonce; empty: none seen.
    std::string place;  ///< The place it wrote under that nonce; empty: none seen.
  };
  std::string key_of_knock(Rank rank) const;
  std::string key_of_room(const std::string& word) const;
  std::string key_of_place(const std::string& word) const;
  std::string key_of_part(std::size_t part) const;
  Status admit(Rank rank, Guest& guest, Duration patience);
  Status admit_all(std::vector<Guest>& guests, Deadline deadline);
  Result<bool> are_those(const std::vector<Guest>& guests);
  Result<std::vector<std::string>> gather(const std::string& mine, StartWatch& watch,
                                          Deadline deadline);
  Status publish(const std::vector<std::string>& places);
  Result<std::vector<std::string>> fetch(Deadline deadline);
  bool has_joined(Rank rank);
  Error missing();

  Store& store_;
  std::string scope_;
  std::string word_;    ///< Nonce of this rank.
  std::string room_;    ///< Generation; empty until rank 0 has answered.
  std::string prefix_;  ///< Of the keys of this generation.
  Who who_;
};

}  // namespace gradwire

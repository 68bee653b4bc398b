#pragma once

#include <string>
#include <vector>

#include "gradwire/comm/rank_place.h"
#include "gradwire/comm/start_watch.h"
#include "gradwire/comm/store.h"
#include "gradwire/net/deadline.h"

namespace gradwire {

/// The exchange of addresses over a store. Each rank leaves its place under "<prefix>place/<word>";
/// rank 0 gathers them and leaves them all, so that each rank asks for a few values, not for one of
/// every other rank.
///
/// A store may still have what an earlier meeting of the same scope has left: a launcher that
/// starts its workers again keeps it, and counts its restarts on each host by itself. So each
/// meeting is in a room of its own: a rank knocks with a word that it has just made up,
/// "<scope>knock/<rank>", and rank 0 answers under that word, "<scope>room/<word>", with the room
/// that it has just made up. A process that is started again in place of one that has died while
/// others wait knocks with another word, so that rank 0 takes the place of the one that lives.
class Meeting {
 public:
  struct Who {
    Rank rank = 0;
    int world_size = 1;
    std::string where;  ///< "10.0.0.1:29500", for messages.
    Duration timeout = {};
  };

  Meeting(Store& store, const std::string& scope, Who who);

  /// Finds the room; to be called first. Errors: timeout (names the ranks that are missing),
  /// disconnected.
  Status enter(Deadline deadline);

  /// The secret that rank 0 has left here; rank 0 makes and leaves it.
  Result<std::string> share_secret(Deadline deadline);

  /// Leaves this rank's place and returns all ranks' places. On rank 0 it tells `watch` that all
  /// have joined. Errors: timeout (names all the ranks that are missing), disconnected, corrupted,
  /// invalid_argument (two processes are this rank), mismatch (of world sizes), and those of
  /// `watch`.
  Result<std::vector<RankPlace>> exchange(const RankPlace& mine, StartWatch& watch,
                                          Deadline deadline);

  /// What the keys of this meeting begin with, and those of no other. Valid once entered.
  const std::string& prefix() const { return prefix_; }

 private:
  /// What rank 0 knows of another rank.
  struct Guest {
    std::string word;   ///< With which it knocked last; empty: it has not.
    std::string place;  ///< That it left under that word; empty: not yet.
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
  std::string word_;    ///< With which this rank knocks.
  std::string room_;    ///< Empty: this rank was not let in yet.
  std::string prefix_;  ///< Of the keys in the room.
  Who who_;
};

}  // namespace gradwire

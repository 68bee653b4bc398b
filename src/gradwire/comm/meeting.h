#pragma once

#include <string>
#include <vector>

#include "gradwire/comm/rank_place.h"
#include "gradwire/comm/store.h"
#include "gradwire/net/deadline.h"

namespace gradwire {

/// The exchange of addresses over a store. Each rank leaves its place under "<prefix>place/<rank>";
/// rank 0 gathers them and leaves them all, so that each rank asks for a few values, not for one of
/// every other rank.
class Meeting {
 public:
  struct Who {
    Rank rank = 0;
    int world_size = 1;
    std::string where;  ///< "10.0.0.1:29500", for messages.
    Duration timeout = {};
  };

  Meeting(Store& store, const std::string& scope, Who who);

  /// The secret that rank 0 has left here; rank 0 makes and leaves it.
  Result<std::string> share_secret(Deadline deadline);

  /// Leaves this rank's place and returns all ranks' places. Errors: timeout (names all the ranks
  /// that are missing), disconnected, corrupted.
  Result<std::vector<RankPlace>> exchange(const RankPlace& mine, Deadline deadline);

 private:
  std::string key_of_place(Rank rank) const;
  std::string key_of_part(std::size_t part) const;
  Result<std::vector<std::string>> gather(Deadline deadline);
  Status publish(const std::vector<std::string>& places);
  Result<std::vector<std::string>> fetch(Deadline deadline);
  Error missing();

  Store& store_;
  std::string prefix_;
  Who who_;
};

}  // namespace gradwire

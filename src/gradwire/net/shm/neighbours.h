#pragma once

#include <vector>

#include "gradwire/net/shm/shared_pair.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// A peer with which this rank shares memory.
struct Neighbour {
  Rank rank = -1;
  SharedPair memory;
  Socket bell;  ///< An eventfd: a write wakes it when it sleeps.
};

/// A peer that may be on this machine, and the authenticated connection to it.
struct Candidate {
  Rank rank = -1;
  const Socket* connection = nullptr;
  std::string name;
};

/// Finds out with which of the candidates memory can be shared, and begins to; the candidates do
/// the same with this rank at the same time. `bell` is what wakes this rank.
///
/// The lower of two ranks invites the other to a local socket with a random name. The higher one
/// makes the memory and passes it on there, with its bell and the invitation's nonce, and says so
/// over the connection; the lower one takes it, passes on its own bell, and says that. Whatever
/// fails on the way only means that the two talk over TCP, which both then know.
///
/// Errors: disconnected, timeout, corrupted (of one of the candidates), system.
Result<std::vector<Neighbour>> meet_neighbours(Rank self, const std::vector<Candidate>& candidates,
                                               const Socket& bell, Deadline deadline);

/// Bytes of each of the two rings between two of `ranks` on one machine. Ranks that share a core
/// take turns, and each turn moves no more than a ring holds: with four ranks on two cores, and
/// with two that happened to be on one, 256 KiB took up to twice as long as 1 MiB. 4 MiB took
/// longer again, because the rings of all no longer stay in the cache. Up to 256 ranks the incoming
/// rings of a rank have 4 MiB together.
std::size_t ring_bytes_for(std::size_t ranks);

}  // namespace gradwire

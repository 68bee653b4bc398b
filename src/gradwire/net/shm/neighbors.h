#pragma once

#include <vector>

#include "gradwire/net/shm/shared_pair.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {

/// A peer that shares memory with this rank.
struct Neighbor {
  Rank rank = -1;
  SharedPair memory;
  Socket bell;  ///< An eventfd that wakes the peer when it sleeps.
};

/// A peer that may be on this machine, and the authenticated connection to it.
struct Candidate {
  Rank rank = -1;
  const Socket* connection = nullptr;
  std::string name;
};

/// Sets up shared memory with the candidates for which it is possible; the candidates must do the
/// same concurrently. `bell` is the eventfd that wakes this rank.
///
/// The lower of two ranks invites the other to a local socket with a random name. The higher one
/// creates the memory, passes it there with its eventfd and the invitation's nonce, and confirms
/// that over the connection. The lower one maps the memory, passes its own eventfd, and confirms.
/// Any failure on the way only means that the two use TCP, and both know it.
///
/// Fails with disconnected, timeout or corrupted (of one of the candidates) or with system.
Result<std::vector<Neighbor>> connect_neighbors(Rank self, const std::vector<Candidate>& candidates,
                                                const Socket& bell, Deadline deadline);

/// Bytes of each of the two rings between two of `ranks` ranks on one machine. Ranks that share a
/// core take turns, and each turn moves at most one ring. With four ranks on two cores, and with
/// two that were scheduled on one core, 256 KiB took up to twice as long as 1 MiB. 4 MiB took
/// longer again, because all rings together no longer fit the cache. With up to 256 ranks, the
/// incoming rings of a rank have 4 MiB in total.
std::size_t ring_bytes_for(std::size_t ranks);

}  // namespace gradwire::net

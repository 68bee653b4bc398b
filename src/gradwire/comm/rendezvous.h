#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/rank_place.h"
#include "gradwire/comm/store.h"
#include "gradwire/net/transport.h"

namespace gradwire {

struct RendezvousOptions {
  /// How long to wait for all ranks to turn up and be connected.
  Duration timeout = std::chrono::seconds(60);
  /// After this long without an acknowledgement the kernel breaks a connection of the mesh.
  Duration dead_peer_timeout = std::chrono::seconds(5);
  /// Keeps apart the communicators that share one given store. The same on all ranks; each
  /// communicator made over the same store needs its own.
  std::string scope = "0";
};

/// Authenticated connections to every other rank of the job, one over each rail, or shared memory.
struct Mesh {
  std::unique_ptr<PollingTransport> transport;
  std::vector<RankPlace> places;  ///< One a rank, this one's included.
};

/// Finds the other ranks and connects to each. Every rank of the job calls it; world_size >= 2.
///
/// Rank 0 serves a store at the job's master address and port (comm/rendezvous_store.h) until every
/// rank has what it needs; with `given` that store is used instead, and if the job has no secret,
/// rank 0 makes one and leaves it there. Each rank listens on one address of each interface of
/// job.interface, else on the one from which packets to the master leave; these are its rails. Rank
/// r connects to all ranks below it, over as many rails as both have. With job.port all that
/// listens on a host does so on that port, which its ranks share (net/shared_port.h). Ranks of one
/// machine then use shared memory (net/shm/open_transport.h), unless job.shared_memory forbids it.
///
/// Errors: timeout (names all ranks that are missing), refused (wrong secret), mismatch (another
/// protocol version or world size), invalid_argument (port taken, unknown interface, a rank that
/// exists twice), disconnected, system (too few descriptors, ...). Blocks; other processes' rubbish
/// on the listening ports is logged and otherwise ignored.
Result<Mesh> connect_mesh(const Job& job, const RendezvousOptions& options = {},
                          Store* given = nullptr);

}  // namespace gradwire

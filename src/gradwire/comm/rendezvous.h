#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/store.h"
#include "gradwire/net/address.h"
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

/// Where a rank is, for people.
struct RankPlace {
  std::string host;       ///< "b"
  SocketAddress address;  ///< Where it listened for the mesh: 10.77.0.4:41234.
  std::string interface;  ///< "gw0"

  /// "rank 3 (host b, 10.77.0.4:41234 over gw0)".
  std::string describe(Rank rank) const;
};

/// One authenticated connection to every other rank of the job.
struct Mesh {
  std::unique_ptr<PollingTransport> transport;
  std::vector<RankPlace> places;  ///< One a rank, this one's included.
};

/// Finds the other ranks and connects to each. Every rank of the job calls it; world_size >= 2.
///
/// Rank 0 serves a store at the job's master address and port (comm/rendezvous_store.h) until every
/// rank has what it needs; with `given` that store is used instead, and if the job has no secret,
/// rank 0 makes one and leaves it there. Each rank listens on one address: of job.interface, else
/// the one from which packets to the master leave. Rank r connects to all ranks below it.
///
/// Errors: timeout (names all ranks that are missing), refused (wrong secret), mismatch (another
/// protocol version or world size), invalid_argument (port taken, unknown interface, a rank that
/// exists twice), disconnected, system. Blocks; other processes' rubbish on the listening ports is
/// logged and otherwise ignored.
Result<Mesh> connect_mesh(const Job& job, const RendezvousOptions& options = {},
                          Store* given = nullptr);

}  // namespace gradwire

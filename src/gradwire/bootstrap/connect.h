#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/bootstrap/store/store.h"
#include "gradwire/net/host_network.h"
#include "gradwire/net/shm/open_transport.h"
#include "gradwire/net/transport.h"

namespace gradwire::bootstrap {

struct StartOptions {
  /// Maximum time until all ranks have joined and are connected.
  Duration timeout = std::chrono::seconds(60);
  /// TCP user timeout: after this time without an acknowledgement, the kernel breaks a connection
  /// of the mesh.
  Duration dead_peer_timeout = std::chrono::seconds(5);
  /// Distinguishes the communicators that share one given store. Must be the same on all ranks, and
  /// different for each communicator created over the same store.
  std::string scope = "0";
};

/// Authenticated TCP connections to every other rank of the job, one per rail.
struct ConnectedRanks {
  net::Connections connections;
  std::vector<RankEndpoint> endpoints;  ///< One per rank, including this one.
};

/// ConnectedRanks as a transport, with shared memory where possible.
struct Mesh {
  std::unique_ptr<net::PollingTransport> transport;
  std::vector<RankEndpoint> endpoints;  ///< One per rank, including this one.
};

/// Connects to all other ranks, with shared memory between ranks of one machine unless
/// job.shared_memory forbids it. Called by every rank of the job; world_size >= 2. `network` must
/// outlive the mesh.
///
/// Rank 0 serves a store on the job's master address and port (bootstrap/store/store_server.h)
/// until all ranks are connected. With `given`, that store is used instead; if the job has no
/// secret, rank 0 then creates one and writes it there. Each rank listens on job.addresses, or on
/// one address of each interface of job.interface, or by default of the interface on the route to
/// the master; these interfaces are its rails. Rank r connects to all lower ranks, over as many
/// rails as both have. With job.port, all listeners of a host use that port, which its ranks share
/// (bootstrap/mesh/shared_port.h).
///
/// Blocks. Invalid input from unauthenticated peers on the listening ports is logged and otherwise
/// ignored. Fails with:
///   timeout: names all missing ranks
///   refused: wrong secret
///   mismatch: of protocol version or world size
///   invalid_argument: port in use, unknown interface, duplicate rank
///   disconnected
///   system: out of file descriptors, ...
Result<Mesh> connect(const net::HostNetwork& network, const Job& job,
                     const StartOptions& options = {}, Store* given = nullptr);

/// connect() without the transport.
Result<ConnectedRanks> connect_ranks(const net::HostNetwork& network, const Job& job,
                                     const StartOptions& options = {}, Store* given = nullptr);

}  // namespace gradwire::bootstrap

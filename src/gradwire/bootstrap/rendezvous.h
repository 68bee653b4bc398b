#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/bootstrap/store.h"
#include "gradwire/net/host_network.h"
#include "gradwire/net/shm/open_transport.h"
#include "gradwire/net/transport.h"

namespace gradwire::bootstrap {

struct RendezvousOptions {
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
struct JoinedRanks {
  net::Connections connections;
  std::vector<RankEndpoint> endpoints;  ///< One per rank, including this one.
};

/// JoinedRanks as a transport, with shared memory where possible.
struct Mesh {
  std::unique_ptr<net::PollingTransport> transport;
  std::vector<RankEndpoint> endpoints;  ///< One per rank, including this one.
};

/// Connects to all other ranks. Called by every rank of the job; world_size >= 2.
///
/// Rank 0 serves a store on the job's master address and port (bootstrap/rendezvous_store.h) until
/// all ranks are connected. With `given`, that store is used instead; if the job has no secret,
/// rank 0 then creates one and writes it there. Each rank listens on job.addresses, or on one
/// address of each interface of job.interface, or by default of the interface on the route to the
/// master; these interfaces are its rails. Rank r connects to all lower ranks, over as many rails
/// as both have. With job.port, all listeners of a host use that port, which its ranks share
/// (bootstrap/shared_port.h).
///
/// Blocks. Invalid input from unauthenticated peers on the listening ports is logged and otherwise
/// ignored. Fails with:
///   timeout: names all missing ranks
///   refused: wrong secret
///   mismatch: of protocol version or world size
///   invalid_argument: port in use, unknown interface, duplicate rank
///   disconnected
///   system: out of file descriptors, ...
Result<JoinedRanks> join_ranks(const net::HostNetwork& network, const Job& job,
                               const RendezvousOptions& options = {}, Store* given = nullptr);

/// join_ranks(), and opens the transport (net/shm/open_transport.h): ranks of one machine use
/// shared memory, unless job.shared_memory forbids it. `network` must outlive it. Fails as
/// join_ranks().
Result<Mesh> connect_mesh(const net::HostNetwork& network, const Job& job,
                          const RendezvousOptions& options = {}, Store* given = nullptr);

}  // namespace gradwire::bootstrap

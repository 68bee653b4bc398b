#include "gradwire/bootstrap/connect.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/bootstrap/given_store_start.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/mesh/endpoint_checks.h"
#include "gradwire/bootstrap/mesh/local_endpoint.h"
#include "gradwire/bootstrap/mesh/mesh_builder.h"
#include "gradwire/bootstrap/serve_store.h"
#include "gradwire/bootstrap/served_start.h"
#include "gradwire/bootstrap/store/open_session.h"
#include "gradwire/net/descriptors.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire::bootstrap {
namespace {

/// Time for which rank 0 keeps the store of a failed start, so that other ranks can read why.
constexpr Duration kErrorLinger = std::chrono::seconds(2);

/// Additional time that a rank grants to the others if it connects just before its deadline.
constexpr Duration kPeerGrace = std::chrono::seconds(2);

/// Maximum time for which a port shared by the ranks of a host may be closed while another rank
/// takes it over.
constexpr Duration kPortChanges = std::chrono::seconds(2);

/// Called before other ranks are involved, so that an invalid name is reported immediately.
Status check_interface(const std::string& wanted) {
  if (wanted.empty()) return {};
  GRADWIRE_ASSIGN_OR_RETURN(const auto all, topology::list_interfaces());
  GRADWIRE_RETURN_IF_ERROR(topology::choose_interfaces(wanted, all));
  return {};
}

/// Reserves file descriptors for the connections and, in addition, for the hand-over of shared
/// memory.
Status allow_connections(const std::vector<RankEndpoint>& endpoints, Rank rank) {
  std::size_t needed = 0;
  for (const RankEndpoint& endpoint : endpoints) {
    needed += 2 + static_cast<std::size_t>(
                      rails_between(endpoints[static_cast<std::size_t>(rank)], endpoint));
  }
  return net::allow_descriptors(needed);
}

std::vector<Rank> neighbors_of(Rank rank, const std::vector<RankEndpoint>& endpoints) {
  const RankEndpoint& own = endpoints[static_cast<std::size_t>(rank)];
  std::vector<Rank> neighbors;
  for (Rank other = 0; other < static_cast<Rank>(endpoints.size()); ++other) {
    const RankEndpoint& endpoint = endpoints[static_cast<std::size_t>(other)];
    if (other == rank || !same_machine(own, endpoint)) continue;
    if (own.shares_memory && endpoint.shares_memory) neighbors.push_back(other);
  }
  return neighbors;
}

net::Connections tuned(std::vector<std::vector<net::Socket>> sockets,
                       const std::vector<RankEndpoint>& endpoints, Rank rank, Duration dead_after) {
  net::Connections made = {.rank = rank,
                           .sockets = std::move(sockets),
                           .names = {},
                           .keys = {},
                           .dead_after = dead_after};
  for (std::size_t peer = 0; peer < endpoints.size(); ++peer) {
    const std::vector<net::Socket>& rails = made.sockets[peer];
    std::vector<std::string>& names = made.names.emplace_back();
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      const bool alone = rails.size() == 1;
      net::tune_stream(rails[rail], alone ? dead_after : std::max(dead_after, net::kRailOutageMax),
                       alone ? net::kUnsentLowWater : net::kUnsentLowWaterOfRails);
      names.push_back(endpoints[peer].describe(static_cast<Rank>(peer), static_cast<int>(rail)));
    }
  }
  return made;
}

/// Returns a check that reports a rank at the other end of `sockets` that has hung up. `sockets`
/// and `endpoints` must outlive it.
Start::ConnectionCheck connection_check(const std::vector<std::vector<net::Socket>>& sockets,
                                        const std::vector<RankEndpoint>& endpoints, Rank self) {
  return [&sockets, &endpoints, self]() -> Status {
    const auto gone = std::ranges::find_if(sockets, [](const std::vector<net::Socket>& rails) {
      return std::ranges::any_of(rails,
                                 [](const net::Socket& rail) { return net::has_ended(rail); });
    });
    if (gone == sockets.end()) return {};
    const Rank rank = static_cast<Rank>(gone - sockets.begin());
    return failure(ErrorKind::disconnected,
                   fmt::format("{} closed its connection with rank {} while the job started",
                               endpoints[static_cast<std::size_t>(rank)].describe(rank), self));
  };
}

/// Connects to all other ranks and waits until all ranks are connected. A failure is reported to
/// the other ranks before this rank's listeners close; otherwise they would take that for the
/// reason.
Result<net::Connections> build_mesh(const net::HostNetwork& network, const Job& job,
                                    const StartOptions& options, LocalEndpoint own,
                                    const std::vector<RankEndpoint>& endpoints, Start& start,
                                    net::Deadline deadline) {
  const auto failed = [&start](const Error& error) { return tl::unexpected(start.fail(error)); };
  if (Status fit = check_endpoints(endpoints, job.rank); !fit) return failed(fit.error());
  if (Status room = allow_connections(endpoints, job.rank); !room) return failed(room.error());
  MeshBuilder builder(network,
                      {.rank = job.rank,
                       .shared = std::move(own.shared),
                       .endpoints = endpoints,
                       .encrypts = job.encryption,
                       .patience = job.port == 0 ? Duration::zero() : kPortChanges,
                       .start = &start},
                      std::move(own.listeners));
  if (Status built = builder.run(deadline, options.timeout); !built) return failed(built.error());
  net::Connections connections =
      tuned(builder.take_sockets(), endpoints, job.rank, options.dead_peer_timeout);
  if (job.encryption) connections.keys = builder.keys();
  const net::Deadline for_all(network.clock(),
                              std::max(deadline.at(), after(network.clock().now(), kPeerGrace)));
  const auto check_connections = connection_check(connections.sockets, endpoints, job.rank);
  GRADWIRE_RETURN_IF_ERROR(start.await_all(for_all, check_connections));
  return connections;
}

/// The steps over a store of either kind. After all ranks have joined, they succeed or fail on all
/// ranks.
Result<ConnectedRanks> run_start(const net::HostNetwork& network, const Job& job,
                                 const StartOptions& options, LocalEndpoint own, Start& start,
                                 net::Deadline deadline) {
  auto endpoints = start.exchange_endpoints(own.endpoint, deadline);
  if (!endpoints) {
    const ErrorKind kind = endpoints.error().kind;
    // A rank that fails before all have joined may be restarted, and the others wait for it.
    const bool may_pass = kind == ErrorKind::timeout || kind == ErrorKind::disconnected;
    return tl::unexpected<Error>(may_pass ? endpoints.error() : start.fail(endpoints.error()));
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto connections, build_mesh(network, job, options, std::move(own),
                                                         *endpoints, start, deadline));
  return ConnectedRanks{std::move(connections), std::move(*endpoints)};
}

/// Connects as a client of the store that rank 0 serves.
Result<ConnectedRanks> start_as_client(const net::HostNetwork& network, const Job& job,
                                       const StartOptions& options, net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(auto session, open_session(network, job, claims_of(job), deadline));
  const net::SocketAddress master = session.server();
  ServedStart start(network, std::move(session), job, options.timeout);
  auto own = open_local_endpoint(network, job,
                                 {.secret = job.secret, .purpose = mesh_purpose(options.scope)},
                                 master, deadline);
  auto connected = own ? run_start(network, job, options, std::move(*own), start, deadline)
                       : tl::unexpected<Error>(own.error());
  // The store ends with rank 0: no rank can join any more, even if rank 0 is restarted.
  if (!connected && job.rank == 0) return tl::unexpected<Error>(start.fail(connected.error()));
  return connected;
}

Result<ConnectedRanks> start_over_own_store(const net::HostNetwork& network, const Job& job,
                                            const StartOptions& options, net::Deadline deadline) {
  if (job.rank != 0) return start_as_client(network, job, options, deadline);
  GRADWIRE_ASSIGN_OR_RETURN(auto server, serve_store(network, job, job.job_id, deadline));
  auto connected = start_as_client(network, job, options, deadline);
  // After a success, every rank is connected and has been told so.
  if (!connected) server->wait_until_idle(net::Deadline::after(network.clock(), kErrorLinger));
  return connected;
}

Result<ConnectedRanks> start_over_given_store(const net::HostNetwork& network, Store& store,
                                              const Job& job, const StartOptions& options,
                                              net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto masters, net::resolve(job.master_address, job.master_port));
  GivenStoreStart start(store, options.scope, job, options.timeout);
  std::string secret = job.secret;
  if (secret.empty() && job.encryption) {
    return failure(
        ErrorKind::invalid_argument,
        "encryption needs a secret that is not readable on the network, but the one that "
        "rank 0 writes to a launcher's store is: set GRADWIRE_SECRET=$(openssl "
        "rand -hex 32), the same on every rank");
  }
  GRADWIRE_RETURN_IF_ERROR(start.join(deadline));
  if (secret.empty()) {
    GRADWIRE_ASSIGN_OR_RETURN(auto shared, start.share_secret(deadline));
    secret = std::move(shared);
  }
  GRADWIRE_ASSIGN_OR_RETURN(
      auto own,
      open_local_endpoint(network, job, {.secret = secret, .purpose = mesh_purpose(options.scope)},
                          masters.front(), deadline));
  return run_start(network, job, options, std::move(own), start, deadline);
}

}  // namespace

Result<ConnectedRanks> connect_ranks(const net::HostNetwork& network, const Job& job,
                                     const StartOptions& options, Store* given) {
  GRADWIRE_CHECK(job.world_size >= 2 && job.world_size <= kMaxRanks);
  GRADWIRE_CHECK(job.rank >= 0 && job.rank < job.world_size);
  GRADWIRE_RETURN_IF_ERROR(check_interface(job.interface));
  GRADWIRE_RETURN_IF_ERROR(check_secret_at(job.secret, job.master_address));
  // One connection per rank, and one more per rank to the store; more rails need more.
  GRADWIRE_RETURN_IF_ERROR(net::allow_descriptors(2 * static_cast<std::size_t>(job.world_size)));
  const net::Deadline deadline = net::Deadline::after(network.clock(), options.timeout);
  if (given != nullptr) return start_over_given_store(network, *given, job, options, deadline);
  if (job.launcher_store) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{} keeps its own store at {}:{}: pass that to the communicator, or "
                               "start the ranks with gradwire run",
                               job.launcher, job.master_address, job.master_port));
  }
  if (job.secret.empty()) {
    return failure(ErrorKind::invalid_argument,
                   "the job has no secret: set GRADWIRE_SECRET to the same value on every rank");
  }
  return start_over_own_store(network, job, options, deadline);
}

Result<Mesh> connect(const net::HostNetwork& network, const Job& job, const StartOptions& options,
                     Store* given) {
  const net::Deadline deadline = net::Deadline::after(network.clock(), options.timeout);
  GRADWIRE_ASSIGN_OR_RETURN(auto connected, connect_ranks(network, job, options, given));
  // Neighbors respond to each other only once they are connected to all ranks.
  GRADWIRE_ASSIGN_OR_RETURN(
      auto transport, net::open_transport(std::move(connected.connections),
                                          neighbors_of(job.rank, connected.endpoints), deadline));
  return Mesh{std::move(transport), std::move(connected.endpoints)};
}

}  // namespace gradwire::bootstrap

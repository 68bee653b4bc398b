#include "gradwire/bootstrap/rendezvous.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/base/log.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/local_rails.h"
#include "gradwire/bootstrap/master_server.h"
#include "gradwire/bootstrap/mesh_builder.h"
#include "gradwire/bootstrap/rendezvous_store.h"
#include "gradwire/bootstrap/shared_port.h"
#include "gradwire/bootstrap/store_rendezvous.h"
#include "gradwire/bootstrap/store_start_watch.h"
#include "gradwire/net/descriptors.h"
#include "gradwire/topology/interfaces.h"
#include "gradwire/topology/machine.h"

namespace gradwire::bootstrap {
namespace {

/// Time for which rank 0 keeps the store of a failed rendezvous, so that other ranks can read the
/// reason.
constexpr Duration kFarewell = std::chrono::seconds(2);

/// Additional time that a rank grants to the others if it connects just before its deadline.
constexpr Duration kForOthers = std::chrono::seconds(2);

/// Maximum time for which a port shared by the ranks of a host may be closed while another rank
/// takes it over.
constexpr Duration kPortChanges = std::chrono::seconds(2);

std::string host_name() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string where_of(const Job& job) {
  return fmt::format("{}:{}", job.master_address, job.master_port);
}

/// Called before other ranks are involved, so that an invalid name is reported immediately.
Status check_interface(const std::string& wanted) {
  if (wanted.empty()) return {};
  GRADWIRE_ASSIGN_OR_RETURN(const auto all, topology::list_interfaces());
  GRADWIRE_RETURN_IF_ERROR(topology::choose_interfaces(wanted, all));
  return {};
}

bool reach_each_other(const RankEndpoint& a, const RankEndpoint& b) {
  for (int i = 0; i < rails_between(a, b); ++i) {
    const net::SocketAddress& one = a.rails[static_cast<std::size_t>(i)].address;
    const net::SocketAddress& other = b.rails[static_cast<std::size_t>(i)].address;
    if (one.family() != other.family() || one.is_loopback() != other.is_loopback()) return false;
  }
  return true;
}

/// Ranks on loopback and ranks on other addresses, or on IPv4 and IPv6, cannot all be connected.
Status check_alike(const std::vector<RankEndpoint>& endpoints) {
  const RankEndpoint& first = endpoints.front();
  for (std::size_t i = 1; i < endpoints.size(); ++i) {
    if (reach_each_other(first, endpoints[i])) continue;
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("{} and {} cannot reach each other: choose interfaces of one network "
                    "on all hosts (GRADWIRE_INTERFACE)",
                    first.describe(0), endpoints[i].describe(static_cast<Rank>(i))));
  }
  return {};
}

/// Reports the mismatch on every rank. The handshakes check it too, protected against modification.
Status check_encryption(const std::vector<RankEndpoint>& endpoints) {
  const auto other = std::ranges::find_if(endpoints, [&](const RankEndpoint& endpoint) {
    return endpoint.encrypts != endpoints.front().encrypts;
  });
  if (other == endpoints.end()) return {};
  const RankEndpoint& first = endpoints.front();
  const std::string other_name = other->describe(static_cast<Rank>(other - endpoints.begin()));
  return failure(ErrorKind::mismatch,
                 fmt::format("{} encrypts its traffic, {} does not: set GRADWIRE_ENCRYPTION to on, "
                             "or to off, for every rank",
                             first.encrypts ? first.describe(0) : other_name,
                             first.encrypts ? other_name : first.describe(0)));
}

/// Other ranks cannot use rails that one rank lacks, so it limits the speed of the job.
void warn_of_fewer_rails(const std::vector<RankEndpoint>& endpoints) {
  const auto count = [](const RankEndpoint& endpoint) { return endpoint.rails.size(); };
  const auto [fewest, most] = std::ranges::minmax_element(endpoints, {}, count);
  if (count(*fewest) == count(*most)) return;
  log_warning("{} has {} of the chosen network interfaces, {} has {}",
              fewest->describe(static_cast<Rank>(fewest - endpoints.begin())), count(*fewest),
              most->describe(static_cast<Rank>(most - endpoints.begin())), count(*most));
}

/// Opens the listeners for the other ranks and writes their addresses into `rails`.
Result<Listeners> open_listeners(const net::HostNetwork& network, const Job& job,
                                 const SharedSecret& shared, std::vector<RailEndpoint>& rails,
                                 net::Deadline deadline) {
  Listeners listeners;
  if (job.port == 0) {
    for (RailEndpoint& rail : rails) {
      GRADWIRE_ASSIGN_OR_RETURN(auto socket, network.listen_on(rail.address));
      rail.address = net::local_address(socket);
      listeners.push_back(std::make_unique<SocketListener>(std::move(socket)));
    }
    return listeners;
  }
  PortMember member = {.destination = {service_number(shared.purpose), job.rank}, .addresses = {}};
  for (RailEndpoint& rail : rails) {
    rail.address = rail.address.with_port(job.port);
    member.addresses.push_back(rail.address);
  }
  GRADWIRE_ASSIGN_OR_RETURN(
      auto listener, SharedPortListener::open(network, shared_port_name(shared.secret, job.port),
                                              member, deadline));
  listeners.push_back(std::move(listener));
  return listeners;
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

/// A rank's state before it knows the other ranks' endpoints.
struct Own {
  SharedSecret shared;
  RankEndpoint endpoint;
  Listeners listeners;
};

/// `master` determines the route to the other ranks.
Result<Own> open_own(const net::HostNetwork& network, const Job& job,
                     const RendezvousOptions& options, const std::string& secret,
                     const net::SocketAddress& master, net::Deadline deadline) {
  Own own = {.shared = {.secret = secret, .purpose = mesh_purpose(options.scope)},
             .endpoint = {},
             .listeners = {}};
  GRADWIRE_ASSIGN_OR_RETURN(auto rails, job.addresses.empty()
                                            ? choose_local_rails(job.interface, master)
                                            : rails_at(job.addresses));
  for (const RailEndpoint& rail : rails) {
    GRADWIRE_RETURN_IF_ERROR(check_secret(secret, rail.address));
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto listeners,
                            open_listeners(network, job, own.shared, rails, deadline));
  own.listeners = std::move(listeners);
  own.endpoint = {.host = host_name(),
                  .machine = job.machine.empty() ? topology::machine_identity() : job.machine,
                  .cores = topology::machine_cores(),
                  .shares_memory = job.shared_memory,
                  .encrypts = job.encryption,
                  .rails = std::move(rails)};
  return own;
}

Status check_endpoints(const std::vector<RankEndpoint>& endpoints, Rank rank) {
  GRADWIRE_RETURN_IF_ERROR(check_alike(endpoints));
  GRADWIRE_RETURN_IF_ERROR(check_encryption(endpoints));
  if (rank == 0) warn_of_fewer_rails(endpoints);
  return allow_connections(endpoints, rank);
}

/// Returns a check that reports a rank at the other end of `sockets` that has hung up. `sockets`
/// and `endpoints` must outlive it.
StartWatch::ConnectionCheck connection_check(const std::vector<std::vector<net::Socket>>& sockets,
                                             const std::vector<RankEndpoint>& endpoints,
                                             Rank self) {
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

/// Covers the phase from all ranks having joined until all are connected. A failure is reported to
/// the other ranks before this rank's listeners close; otherwise they would take that for
/// the reason.
Result<net::Connections> connect_all(const net::HostNetwork& network, const Job& job,
                                     const RendezvousOptions& options, Own own,
                                     const std::vector<RankEndpoint>& endpoints, StartWatch& watch,
                                     net::Deadline deadline) {
  const auto failed = [&watch](const Error& error) { return tl::unexpected(watch.fail(error)); };
  if (Status fit = check_endpoints(endpoints, job.rank); !fit) return failed(fit.error());
  MeshBuilder builder(network,
                      {.rank = job.rank,
                       .shared = std::move(own.shared),
                       .endpoints = endpoints,
                       .encrypts = job.encryption,
                       .patience = job.port == 0 ? Duration::zero() : kPortChanges,
                       .watch = &watch},
                      std::move(own.listeners));
  if (Status built = builder.run(deadline, options.timeout); !built) return failed(built.error());
  net::Connections connections =
      tuned(builder.take_sockets(), endpoints, job.rank, options.dead_peer_timeout);
  if (job.encryption) connections.keys = builder.keys();
  const net::Deadline for_all(network.clock(),
                              std::max(deadline.at(), after(network.clock().now(), kForOthers)));
  const auto check_connections = connection_check(connections.sockets, endpoints, job.rank);
  GRADWIRE_RETURN_IF_ERROR(watch.complete(for_all, check_connections));
  return connections;
}

/// Steps that use a store of either kind. After all ranks have joined, they succeed or fail on all
/// ranks.
Result<JoinedRanks> join(const net::HostNetwork& network, const Job& job,
                         const RendezvousOptions& options, Own own, StoreRendezvous& rendezvous,
                         StartWatch& watch, net::Deadline deadline) {
  auto endpoints = rendezvous.exchange(own.endpoint, watch, deadline);
  if (!endpoints) {
    const ErrorKind kind = endpoints.error().kind;
    // A rank that fails before all have joined may be restarted, and the others wait for it.
    const bool may_pass = kind == ErrorKind::timeout || kind == ErrorKind::disconnected;
    return tl::unexpected<Error>(may_pass ? endpoints.error() : watch.fail(endpoints.error()));
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto connections, connect_all(network, job, options, std::move(own),
                                                          *endpoints, watch, deadline));
  return JoinedRanks{std::move(connections), std::move(*endpoints)};
}

StoreRendezvous::Identity identity_of(const Job& job, const RendezvousOptions& options) {
  return {.rank = job.rank,
          .world_size = job.world_size,
          .where = where_of(job),
          .timeout = options.timeout};
}

Result<JoinedRanks> join_through(const net::HostNetwork& network, RendezvousStore& store,
                                 const Job& job, const RendezvousOptions& options,
                                 net::Deadline deadline) {
  StoreRendezvous rendezvous(store, options.scope, identity_of(job, options));
  GRADWIRE_RETURN_IF_ERROR(rendezvous.join(deadline));
  GRADWIRE_ASSIGN_OR_RETURN(auto own,
                            open_own(network, job, options, job.secret, store.server(), deadline));
  return join(network, job, options, std::move(own), rendezvous, store, deadline);
}

/// Joins as a client of the store that rank 0 serves.
Result<JoinedRanks> join_at_master(const net::HostNetwork& network, const Job& job,
                                   const RendezvousOptions& options, net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(auto store, RendezvousStore::connect(network,
                                                                 {.host = job.master_address,
                                                                  .port = job.master_port,
                                                                  .secret = job.secret,
                                                                  .rank = job.rank,
                                                                  .world_size = job.world_size,
                                                                  .job_id = job.job_id,
                                                                  .own_host = host_name()},
                                                                 deadline));
  auto joined = join_through(network, *store, job, options, deadline);
  // The store ends with rank 0: no rank can join any more, even if rank 0 is restarted.
  if (!joined && job.rank == 0) return tl::unexpected<Error>(store->fail(joined.error()));
  return joined;
}

Result<JoinedRanks> rendezvous_at_master(const net::HostNetwork& network, const Job& job,
                                         const RendezvousOptions& options, net::Deadline deadline) {
  if (job.rank != 0) return join_at_master(network, job, options, deadline);
  GRADWIRE_ASSIGN_OR_RETURN(auto server, serve_at_master(network, job, deadline));
  auto joined = join_at_master(network, job, options, deadline);
  // Every rank is connected and has been told so.
  if (joined) return joined;
  server->wait_until_idle(net::Deadline::after(network.clock(), kFarewell));
  return joined;
}

Result<JoinedRanks> rendezvous_in(const net::HostNetwork& network, Store& store, const Job& job,
                                  const RendezvousOptions& options, net::Deadline deadline) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto masters, net::resolve(job.master_address, job.master_port));
  StoreRendezvous rendezvous(store, options.scope, identity_of(job, options));
  std::string secret = job.secret;
  if (secret.empty() && job.encryption) {
    return failure(
        ErrorKind::invalid_argument,
        "encryption needs a secret that is not readable on the network, but the one that "
        "rank 0 writes to a launcher's store is: set GRADWIRE_SECRET=$(openssl "
        "rand -hex 32), the same on every rank");
  }
  GRADWIRE_RETURN_IF_ERROR(rendezvous.join(deadline));
  if (secret.empty()) {
    GRADWIRE_ASSIGN_OR_RETURN(auto shared, rendezvous.share_secret(deadline));
    secret = std::move(shared);
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto own,
                            open_own(network, job, options, secret, masters.front(), deadline));
  StoreStartWatch watch(
      store, rendezvous.prefix(),
      {.rank = job.rank, .world_size = job.world_size, .name = own.endpoint.describe(job.rank)});
  return join(network, job, options, std::move(own), rendezvous, watch, deadline);
}

}  // namespace

Result<JoinedRanks> join_ranks(const net::HostNetwork& network, const Job& job,
                               const RendezvousOptions& options, Store* given) {
  GRADWIRE_CHECK(job.world_size >= 2 && job.world_size <= kMaxRanks);
  GRADWIRE_CHECK(job.rank >= 0 && job.rank < job.world_size);
  GRADWIRE_RETURN_IF_ERROR(check_interface(job.interface));
  GRADWIRE_RETURN_IF_ERROR(check_secret_at(job.secret, job.master_address));
  // One connection per rank, and one more per rank to the store; more rails need more.
  GRADWIRE_RETURN_IF_ERROR(net::allow_descriptors(2 * static_cast<std::size_t>(job.world_size)));
  const net::Deadline deadline = net::Deadline::after(network.clock(), options.timeout);
  if (given != nullptr) return rendezvous_in(network, *given, job, options, deadline);
  if (job.launcher_store) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{} keeps its own store at {}: pass that to the communicator, or "
                               "start the ranks with gradwire run",
                               job.launcher, where_of(job)));
  }
  if (job.secret.empty()) {
    return failure(ErrorKind::invalid_argument,
                   "the job has no secret: set GRADWIRE_SECRET to the same value on every rank");
  }
  return rendezvous_at_master(network, job, options, deadline);
}

Result<Mesh> connect_mesh(const net::HostNetwork& network, const Job& job,
                          const RendezvousOptions& options, Store* given) {
  const net::Deadline deadline = net::Deadline::after(network.clock(), options.timeout);
  GRADWIRE_ASSIGN_OR_RETURN(auto joined, join_ranks(network, job, options, given));
  // Neighbors respond to each other only once they are connected to all ranks.
  GRADWIRE_ASSIGN_OR_RETURN(
      auto transport, net::open_transport(std::move(joined.connections),
                                          neighbors_of(job.rank, joined.endpoints), deadline));
  return Mesh{std::move(transport), std::move(joined.endpoints)};
}

}  // namespace gradwire::bootstrap

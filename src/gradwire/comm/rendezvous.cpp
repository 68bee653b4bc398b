#include "gradwire/comm/rendezvous.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/comm/local_place.h"
#include "gradwire/comm/meeting.h"
#include "gradwire/comm/mesh_builder.h"
#include "gradwire/comm/rendezvous_server.h"
#include "gradwire/comm/rendezvous_store.h"
#include "gradwire/net/tcp_transport.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire {
namespace {

/// How long rank 0 keeps the store of a rendezvous that failed, for the others to read why.
constexpr Duration kFarewell = std::chrono::seconds(2);

std::string host_name() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string where_of(const Job& job) {
  return fmt::format("{}:{}", job.master_address, job.master_port);
}

/// Before anybody else is involved, so that a wrong name is reported at once.
Status check_interface(const std::string& wanted) {
  if (wanted.empty()) return {};
  const auto all = list_interfaces();
  if (!all) return tl::unexpected<Error>(all.error());
  const auto chosen = choose_interfaces(wanted, *all);
  if (!chosen) return tl::unexpected<Error>(chosen.error());
  return {};
}

/// Ranks at the loopback and ranks elsewhere, or at IPv4 and IPv6, cannot all be connected.
Status check_alike(const std::vector<RankPlace>& places) {
  const RankPlace& first = places.front();
  for (std::size_t i = 1; i < places.size(); ++i) {
    const RankPlace& other = places[i];
    if (other.address.family() == first.address.family() &&
        other.address.is_loopback() == first.address.is_loopback()) {
      continue;
    }
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("{} and {} cannot reach each other: choose interfaces of one network "
                    "on all hosts (GRADWIRE_INTERFACE)",
                    first.describe(0), other.describe(static_cast<Rank>(i))));
  }
  return {};
}

/// The steps that need a store, whichever it is. `master` says which way the others are.
Result<Mesh> join(const Job& job, const RendezvousOptions& options, const std::string& secret,
                  const SocketAddress& master, Meeting& meeting, Deadline deadline) {
  auto here = choose_local_place(job.interface, master);
  if (!here) return tl::unexpected<Error>(here.error());
  auto listener = listen_on(here->address);
  if (!listener) return tl::unexpected<Error>(listener.error());
  const RankPlace mine = {
      .host = host_name(), .address = local_address(*listener), .interface = here->interface};
  auto places = meeting.exchange(mine, deadline);
  if (!places) return tl::unexpected<Error>(places.error());
  if (Status alike = check_alike(*places); !alike) return tl::unexpected<Error>(alike.error());

  MeshBuilder builder(job.rank, secret, options.scope, *places, std::move(*listener));
  if (Status built = builder.run(deadline, options.timeout); !built) {
    return tl::unexpected<Error>(built.error());
  }
  std::vector<Socket> sockets = builder.take_sockets();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    if (sockets[i].valid()) tune_stream(sockets[i], options.dead_peer_timeout);
    names.push_back((*places)[i].describe(static_cast<Rank>(i)));
  }
  auto transport =
      TcpTransport::create(std::move(sockets), std::move(names), options.dead_peer_timeout);
  if (!transport) return tl::unexpected<Error>(transport.error());
  return Mesh{std::move(*transport), std::move(*places)};
}

/// Rank 0's name must mean an address that other hosts can reach: some systems' /etc/hosts has the
/// host's own name at 127.0.1.1.
void warn_of_hidden_loopback(const Job& job, const SocketAddress& address) {
  if (!address.is_loopback() || job.local_world_size == job.world_size) return;
  if (job.master_address == "localhost" || SocketAddress::of(job.master_address, 0)) return;
  spdlog::warn(
      "{} is {} on its own host, where no other host can reach it: give rank 0's address "
      "as MASTER_ADDR",
      job.master_address, address.host());
}

/// Listens at the first of the master's addresses that is this host's.
Result<Socket> listen_as_master(const Job& job) {
  const auto addresses = resolve(job.master_address, job.master_port);
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  Error last;
  for (const SocketAddress& address : *addresses) {
    auto listener = listen_on(address);
    if (listener) {
      warn_of_hidden_loopback(job, address);
      return listener;
    }
    last = listener.error();
  }
  return failure(last.kind, "rank 0 " + last.message + " (it listens at MASTER_ADDR:MASTER_PORT)");
}

Result<std::unique_ptr<RendezvousServer>> serve(const Job& job) {
  auto listener = listen_as_master(job);
  if (!listener) return tl::unexpected<Error>(listener.error());
  return RendezvousServer::start(std::move(*listener), job.secret, job.world_size);
}

Meeting::Who who_of(const Job& job, const RendezvousOptions& options) {
  return {.rank = job.rank,
          .world_size = job.world_size,
          .where = where_of(job),
          .timeout = options.timeout};
}

/// As a client of the store that rank 0 serves.
Result<Mesh> join_at_master(const Job& job, const RendezvousOptions& options, Deadline deadline) {
  auto store = RendezvousStore::connect({.host = job.master_address,
                                         .port = job.master_port,
                                         .secret = job.secret,
                                         .rank = job.rank,
                                         .world_size = job.world_size},
                                        deadline);
  if (!store) return tl::unexpected<Error>(store.error());
  Meeting meeting(**store, options.scope, who_of(job, options));
  Result<Mesh> mesh = join(job, options, job.secret, (*store)->server(), meeting, deadline);
  // Rank 0 may have closed the store already.
  if (mesh) (void)(*store)->finish();
  return mesh;
}

Result<Mesh> meet_at_master(const Job& job, const RendezvousOptions& options, Deadline deadline) {
  if (job.rank != 0) return join_at_master(job, options, deadline);
  auto server = serve(job);
  if (!server) return tl::unexpected<Error>(server.error());
  Result<Mesh> mesh = join_at_master(job, options, deadline);
  // Every rank has connected to this one, for which it must have read all it needs from the store.
  if (mesh) return mesh;
  (*server)->wait_until_alone(Deadline::after(kFarewell));
  return mesh;
}

Result<Mesh> meet_in(Store& store, const Job& job, const RendezvousOptions& options,
                     Deadline deadline) {
  const auto masters = resolve(job.master_address, job.master_port);
  if (!masters) return tl::unexpected<Error>(masters.error());
  Meeting meeting(store, options.scope, who_of(job, options));
  std::string secret = job.secret;
  if (secret.empty()) {
    auto shared = meeting.share_secret(deadline);
    if (!shared) return tl::unexpected<Error>(shared.error());
    secret = std::move(*shared);
  }
  return join(job, options, secret, masters->front(), meeting, deadline);
}

}  // namespace

Result<Mesh> connect_mesh(const Job& job, const RendezvousOptions& options, Store* given) {
  GRADWIRE_CHECK(job.world_size >= 2 && job.world_size <= kMaxRanks);
  GRADWIRE_CHECK(job.rank >= 0 && job.rank < job.world_size);
  if (Status usable = check_interface(job.interface); !usable) {
    return tl::unexpected<Error>(usable.error());
  }
  const Deadline deadline = Deadline::after(options.timeout);
  if (given != nullptr) return meet_in(*given, job, options, deadline);
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
  return meet_at_master(job, options, deadline);
}

}  // namespace gradwire

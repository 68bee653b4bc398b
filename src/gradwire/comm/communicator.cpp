#include "gradwire/comm/communicator.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/cpu.h"
#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/connect.h"
#include "gradwire/bootstrap/engine_name.h"
#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/comm/arguments.h"
#include "gradwire/comm/job_topology.h"
#include "gradwire/comm/scheduled_communicator.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/engine/progress.h"
#include "gradwire/engine/solo_engine.h"
#include "gradwire/mpi/members.h"
#include "gradwire/mpi/mpi_engine.h"
#include "gradwire/net/host_network.h"

namespace gradwire {
namespace {

engine::ExecutorOptions executor_options(const CommunicatorOptions& options) {
  engine::ExecutorOptions made;
  made.limits.segment_bytes = options.segment_bytes;
  made.limits.eager_bytes = options.eager_bytes;
  made.dead_peer_timeout = options.dead_peer_timeout;
  made.domain = options.failure_domain;
  made.on_warning = [](const std::string& what) { log_warning(what); };
  if (const auto path = options.environment(bootstrap::kReportVariable)) {
    made.on_failure = [path = *path](Rank cause, const std::string& message) {
      bootstrap::write_report(path, {cause, message});
    };
  }
  return made;
}

/// Returns the option, or the variable's value if the option is empty.
std::string option_or(const std::string& option, const bootstrap::Environment& environment,
                      const char* variable) {
  return option.empty() ? environment(variable).value_or("") : option;
}

/// Returns the algorithms forced for the job. Throws Exception(invalid_argument), which names the
/// source of an unknown name.
ForcedAlgorithms forced_algorithms(const CommunicatorOptions& options) {
  const char* const variable = "GRADWIRE_ALGORITHM";
  return value_or_throw(
      parse_forced_algorithms(option_or(options.algorithm, options.environment, variable),
                              options.algorithm.empty() ? variable : "the option algorithm"));
}

/// Returns true if every rank can have a core of this machine to itself.
bool has_cores_to_spare(const topology::Topology& topology) {
  return topology.hosts() == 1 && topology.ranks() <= usable_cores();
}

std::shared_ptr<const net::HostNetwork> network_of(const CommunicatorOptions& options) {
  return options.network ? options.network : std::make_shared<net::KernelNetwork>();
}

/// Returns true if MPI has got the network cards, from the launcher or from its own variables.
bool has_cards_of(const Job& job, const bootstrap::Environment& environment) {
  return environment("GRADWIRE_INTERFACE") == job.interface &&
         (environment("UCX_NET_DEVICES") || environment("OMPI_MCA_btl_tcp_if_include"));
}

/// Throws Exception(unsupported), which names it, for what MPI cannot do.
void check_options_for_mpi(const Job& job, const CommunicatorOptions& options,
                           const ForcedAlgorithms& forced) {
  const auto unsupported = [](const char* what, const char* remedy) {
    throw Exception(ErrorKind::unsupported, fmt::format("engine mpi has no {}: {}", what, remedy));
  };
  if (options.failure_domain == FailureDomain::pair)
    unsupported("failures of a pair of ranks alone, which parameter servers need",
                "use gradwire's own engine");
  if (job.encryption)
    unsupported("encryption and no authentication",
                "use gradwire's own engine, or MPI on a network that you trust");
  if (!forced.empty()) unsupported("algorithms of gradwire's", "force none");
  if (!option_or(options.topology, options.environment, "GRADWIRE_TOPOLOGY").empty())
    unsupported("use for a topology (the option topology, GRADWIRE_TOPOLOGY)", "give none");
  if (job.port != 0)
    unsupported("port of the job's (the option port, GRADWIRE_PORT)",
                "give a range of ports in MPI's own settings");
  if (!job.shared_memory)
    unsupported("switch for shared memory (the option shared_memory, GRADWIRE_SHARED_MEMORY)",
                "turn it off in MPI's own settings");
  if (!job.interface.empty() && !has_cards_of(job, options.environment))
    unsupported("choice of network cards in a rank (the option interface, GRADWIRE_INTERFACE)",
                "give --interface to gradwire run --engine mpi, or a list in MPI's own settings");
  if (options.dead_peer_timeout != CommunicatorOptions{}.dead_peer_timeout)
    unsupported("dead_peer_timeout", "MPI decides how long a dead rank goes unnoticed");
}

std::shared_ptr<Communicator> connect_mpi(const Job& job, const CommunicatorOptions& options,
                                          const ForcedAlgorithms& forced, bootstrap::Store* store) {
  check_options_for_mpi(job, options, forced);
  if (store != nullptr)
    mpi::agree_on_engine(*store, options.scope, job, options.rendezvous_timeout);
  const std::shared_ptr<const net::HostNetwork> network = network_of(options);
  const auto process = mpi::Process::start(
      options.environment, std::shared_ptr<const Clock>(network, &network->clock()));
  std::vector<Rank> members;
  if (store != nullptr) {
    members = mpi::agree_on_members(*store, options.scope, job, process->rank(),
                                    options.rendezvous_timeout);
  } else {
    process->check_job(job);
  }
  auto engine = std::make_shared<mpi::MpiEngine>(process, members);
  return std::make_shared<ScheduledCommunicator>(
      job.rank, options, std::make_shared<Planner>(job.rank, job.world_size, "mpi"),
      std::make_shared<SharedEngine>(std::move(engine)));
}

/// Result of connecting to all ranks of a job.
struct Connected {
  std::shared_ptr<engine::Engine> engine;
  std::vector<bootstrap::RankEndpoint> endpoints;
  topology::Topology topology;  ///< The assumed topology, before rank 0's is agreed on.
};

Connected open_engine(const Job& job, const CommunicatorOptions& options, bootstrap::Store* store) {
  const std::shared_ptr<const net::HostNetwork> network = network_of(options);
  const std::shared_ptr<const Clock> clock(network, &network->clock());
  if (job.world_size == 1) {
    return {std::make_shared<engine::SoloEngine>(executor_options(options), clock),
            {},
            Tuner::assumed(1)};
  }
  bootstrap::Mesh mesh =
      value_or_throw(bootstrap::connect(*network, job,
                                        {.timeout = options.rendezvous_timeout,
                                         .dead_peer_timeout = options.dead_peer_timeout,
                                         .scope = options.scope},
                                        store));
  topology::Topology topology = assumed_topology(mesh.endpoints);
  auto engine = std::make_shared<engine::Progress>(std::move(mesh.transport), job.rank,
                                                   job.world_size, executor_options(options), clock,
                                                   has_cores_to_spare(topology));
  return {std::move(engine), std::move(mesh.endpoints), std::move(topology)};
}

}  // namespace

int Communicator::reserve_lanes(int count) {
  int first = next_lane_->load();
  do {
    if (count > kMaxLane + 1 - first) {
      refuse("all lanes of this communicator are reserved; create another communicator");
    }
  } while (!next_lane_->compare_exchange_weak(first, first + count));
  open_lanes(first, count);
  return first;
}

std::shared_ptr<Communicator> Communicator::connect(const Job& job,
                                                    const CommunicatorOptions& options,
                                                    std::shared_ptr<bootstrap::Store> store) {
  // Report an invalid name before other ranks wait for this one.
  const ForcedAlgorithms forced = forced_algorithms(options);
  const std::string& engine = options.engine.empty() ? job.engine : options.engine;
  if (const std::string why = bootstrap::engine_refusal(engine); !why.empty()) refuse("{}", why);
  if (engine == "mpi" && job.world_size > 1) return connect_mpi(job, options, forced, store.get());
  std::optional<mpi::OwnEngineStore> own_store;
  if (store && job.world_size > 1) own_store.emplace(*store, options.scope, job.rank);
  const auto planner = [&](topology::JobTopology by) {
    return std::make_shared<Planner>(job.rank, std::move(by), forced, options.segment_bytes);
  };
  const Connected connected = open_engine(job, options, own_store ? &*own_store : nullptr);
  auto communicator = std::make_shared<ScheduledCommunicator>(
      job.rank, options, planner({.topology = connected.topology, .choices = {}}),
      std::make_shared<SharedEngine>(connected.engine));
  // Messages need no plan.
  if (job.world_size == 1 || options.failure_domain == FailureDomain::pair) return communicator;
  topology::JobTopology agreed =
      agree_on_topology(*communicator, connected.endpoints,
                        option_or(options.topology, options.environment, "GRADWIRE_TOPOLOGY"));
  if (agreed.topology != connected.topology || !agreed.choices.empty())
    communicator->set_planner(planner(std::move(agreed)));
  return communicator;
}

}  // namespace gradwire

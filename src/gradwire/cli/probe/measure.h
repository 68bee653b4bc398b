#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/bootstrap/connect.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/cli/probe/echo.h"
#include "gradwire/cli/probe/wire.h"
#include "gradwire/net/address.h"
#include "gradwire/topology/cluster.h"

namespace gradwire::cli {

/// Returns the interface to which a socket from `own` to `other` must be bound for its packets to
/// leave there. Empty if they leave there without binding, or if binding could keep answers from
/// arriving.
std::string binding_of(const bootstrap::RailEndpoint& own, const net::SocketAddress& other);

/// Returns true if packets from the rail leave by another interface and a process cannot prevent
/// it.
bool is_detour(const bootstrap::RailEndpoint& own, const net::SocketAddress& other);

/// A rank that measures.
struct Prober {
  Rank rank = 0;
  int ranks = 1;
  std::string host;     ///< Name for reports.
  std::string machine;  ///< Distinguishes hosts.
  std::string kernel;   ///< Equal for hosts that share processors; empty: as host.
  int cores = 0;
  std::vector<bootstrap::RailEndpoint> rails;
  std::uint16_t port = 0;  ///< UDP port of its echo; 0: a free port.
};

struct ProbeOptions {
  /// Duration of a rate measurement. There are two for each direction and rail, and, after those of
  /// all hosts, up to three more where the rate is low compared with the fastest. The maximum
  /// counts: one lost packet can stop TCP, and another program hold the processors, for most of
  /// this time.
  Duration bandwidth_time = std::chrono::milliseconds(300);
  int loss_questions = kLossQuestions;  ///< Datagrams; 0: losses are not measured.
  int round_trips = 200;
};

/// Measures all links between the hosts of the ranks. The first rank of each host measures,
/// together with the second rank for links inside the host. Called by all ranks together, over a
/// transport without other users. The result is the same on all ranks. Fails with the errors of
/// Wire.
Result<topology::Cluster> measure_cluster(net::PollingTransport& transport, const Prober& me,
                                          const Clock& clock, const ProbeOptions& options = {});

/// Returns this rank of a connected job as a prober. If the job has a port, the first rank of each
/// host receives datagrams there, as firewalls may block other ports.
Prober prober_of(const bootstrap::Job& job, const bootstrap::Mesh& mesh);

}  // namespace gradwire::cli

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/cli/probe/echo.h"
#include "gradwire/cli/probe/wire.h"
#include "gradwire/topology/cluster.h"

namespace gradwire {

/// A rank that measures.
struct Prober {
  Rank rank = 0;
  int ranks = 1;
  std::string host;     ///< Name for reports.
  std::string machine;  ///< Distinguishes hosts.
  std::string kernel;   ///< Equal for hosts that share processors; empty: as host.
  int cores = 0;
  std::vector<RailEndpoint> rails;
  std::uint16_t port = 0;  ///< UDP port of its echo; 0: a free port.
};

struct ProbeOptions {
  /// Duration of a rate measurement. There are two for each direction and rail, and up to three
  /// more if the rate seems low. The maximum counts, as one lost packet can stop TCP for most of
  /// this time.
  Duration bandwidth_time = std::chrono::milliseconds(300);
  int loss_questions = kLossQuestions;  ///< Datagrams; 0: losses are not measured.
  int round_trips = 200;
};

/// Measures all links between the hosts of the ranks. The first rank of each host measures,
/// together with the second rank for links inside the host. Called by all ranks together, over a
/// transport without other users. The result is the same on all ranks. Fails with the errors of
/// Wire.
Result<Cluster> measure_cluster(PollingTransport& transport, const Prober& me, const Clock& clock,
                                const ProbeOptions& options = {});

}  // namespace gradwire

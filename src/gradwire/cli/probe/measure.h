#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/cli/probe/echo.h"
#include "gradwire/cli/probe/wire.h"
#include "gradwire/comm/rank_place.h"
#include "gradwire/topology/cluster.h"

namespace gradwire {

/// Who measures.
struct Prober {
  Rank rank = 0;
  int ranks = 1;
  std::string host;     ///< For people.
  std::string machine;  ///< Tells hosts apart.
  std::string kernel;   ///< The same for hosts that share processors; empty: the host's own.
  int cores = 0;
  std::vector<RailPlace> rails;
  std::uint16_t port = 0;  ///< Where datagrams for it come in; 0: any free one.
};

struct ProbeOptions {
  /// For each direction and rail, twice, and a few times more where it seems slow: the best counts,
  /// as one lost packet can stop TCP for most of such a time.
  Duration bandwidth_time = std::chrono::milliseconds(300);
  int loss_questions = kLossQuestions;  ///< Datagrams; 0: losses are not measured.
  int round_trips = 200;
};

/// Measures everything between the hosts that the ranks are on; of each host its first rank
/// measures, and its second for what is inside. Called by all ranks together, over a transport that
/// nobody else uses. The result is the same on all of them. Errors: those of Wire.
Result<Cluster> measure_cluster(PollingTransport& transport, const Prober& me,
                                const ProbeOptions& options = {});

}  // namespace gradwire

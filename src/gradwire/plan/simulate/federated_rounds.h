#pragma once

#include <cstdint>

#include "gradwire/base/log_normal.h"

namespace gradwire::plan {

/// A server that asks clients to train locally and averages the first updates (Bonawitz et al.,
/// "Towards Federated Learning at Scale", MLSys 2019, sections 2 and 9).
struct FederatedModel {
  int clients = 1000;
  int asked = 300;             ///< Per round, at random; more than `used` (over-selection).
  int used = 256;              ///< The first `used` updates count.
  double window = 60;          ///< Seconds after which a round ends with the updates so far.
  LogNormal compute{10, 0.5};  ///< Seconds of a client's local epochs. Drawn for each client.
  LogNormal down{2.5e6, 0.5}, up{6e5, 0.5};  ///< Bytes per second of a client. Drawn for each.
  double model_bytes = 0, update_bytes = 0;
  double server_rate = 0;  ///< Bytes per second, each direction; 0: unlimited.
  double dropout = 0;      ///< Share of the asked clients that never answer.
};

struct FederatedRounds {
  double round = 0;         ///< Seconds, mean.
  double used = 0;          ///< Updates that count, mean.
  double wasted_share = 0;  ///< Share of the clients' work that does not count.
  double short_rounds = 0;  ///< Share of rounds that the window ended.
  double server_bytes = 0;  ///< Sent and received by the server per round, mean.
  /// Fairness of how often each client's update counted: (sum)^2 / (n sum of squares), 1 if all are
  /// equal (Jain et al., DEC-TR-301, 1984). Slow clients count less often.
  double fairness = 1;
};

FederatedRounds simulate_federated(const FederatedModel& model, int rounds, std::uint64_t seed);

}  // namespace gradwire::plan

#pragma once

#include <cstdint>

#include "gradwire/plan/simulate/log_normal.h"

namespace gradwire {

/// A server that asks clients to train for a while and averages what the first of them send
/// (Bonawitz et al., "Towards Federated Learning at Scale", MLSys 2019, sections 2 and 9).
struct FederatedModel {
  int clients = 1000;
  int asked = 300;     ///< Each round, at random: more than are needed (over-selection).
  int used = 256;      ///< The first so many count.
  double window = 60;  ///< Seconds after which a round ends, with those that have come by then.
  LogNormal compute{10, 0.5};  ///< Seconds of a client's local epochs. Drawn for each client.
  LogNormal down{2.5e6, 0.5}, up{6e5, 0.5};  ///< Bytes per second of a client. Likewise.
  double model_bytes = 0, update_bytes = 0;
  double server_rate = 0;  ///< Bytes per second, each direction; 0: not a limit.
  double dropout = 0;      ///< Share of the asked that never answers.
};

struct FederatedRounds {
  double round = 0;         ///< Seconds, in the mean.
  double used = 0;          ///< Updates that counted, in the mean.
  double wasted_share = 0;  ///< Of the work that clients began, what did not count.
  double short_rounds = 0;  ///< Share of rounds that the window ended.
  double server_bytes = 0;  ///< That the server sent and received in a round, in the mean.
  /// Of how often each client's update counted: (sum)^2 / (n sum of squares), 1 is all alike (Jain
  /// et al., DEC-TR-301, 1984). Slow clients count less often.
  double fairness = 1;
};

FederatedRounds simulate_federated(const FederatedModel& model, int rounds, std::uint64_t seed);

}  // namespace gradwire

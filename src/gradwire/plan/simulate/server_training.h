#pragma once

#include <cstdint>

#include "gradwire/plan/simulate/log_normal.h"

namespace gradwire {

/// Workers that push gradients to servers and pull parameters from them. Each server has 1/k of
/// the parameters, and all do the same at the same time, so that one stands for all.
struct ServerModel {
  int workers = 1;
  int servers = 1;
  double bytes = 0;                         ///< Of all gradients; as many of all parameters.
  double worker_rate = 0, server_rate = 0;  ///< Bytes per second of a port, each direction.
  double latency = 0;                       ///< Seconds, one way.
  LogNormal compute;                        ///< Seconds of a worker's pass, drawn for each.
  /// Workers do not wait for each other (Downpour: Dean et al., NeurIPS 2012).
  bool asynchronous = false;
};

struct ServerTraining {
  double updates_per_second = 0;  ///< Gradients of single workers that were applied.
  double step = 0;                ///< Seconds between two of one worker, in the mean.
  /// Updates of others that were applied between a worker's pull and its push, in the mean.
  double staleness = 0;
  double largest_staleness = 0;
  double server_busy = 0;  ///< Share of the time that a server's port receives.
};

/// Plays `steps` steps of each worker through, after as many tenths that do not count. Servers
/// receive one gradient after the other, first come first served, and send likewise.
ServerTraining simulate_servers(const ServerModel& model, int steps, std::uint64_t seed);

}  // namespace gradwire

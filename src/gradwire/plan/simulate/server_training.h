#pragma once

#include <cstdint>

#include "gradwire/base/log_normal.h"
#include "gradwire/emulation/pass_times.h"
#include "gradwire/servers/server_policy.h"

namespace gradwire::plan {

/// Workers that push gradients to servers and pull parameters from them. Each server has 1/servers
/// of the parameters. All servers do the same at the same time, so one represents all. The model is
/// one unit, which a worker pushes after a pass and waits for; servers compute in no time.
struct ServerModel {
  servers::ServerPolicy policy;  ///< With the number of workers, or of groups of them.
  int servers = 1;
  int members = 1;                          ///< Workers of a group.
  double bytes = 0;                         ///< Size of all gradients, as they are pushed.
  double pull_bytes = 0;                    ///< Size of all parameters, as they are pulled.
  double worker_rate = 0, server_rate = 0;  ///< Bytes per second of a port, each direction.
  double latency = 0;                       ///< Seconds, one way.
  /// Seconds in which the members of a group average gradients and gather parameters, each step.
  double inside = 0;
  int pull_every = 1;          ///< Pushes from one pull to the next.
  LogNormal compute;           ///< Seconds of a worker's pass, drawn for each pass.
  emulation::PassTimes times;  ///< Factors on these, by worker, each member of a group.
};

struct ServerTraining {
  double updates_per_second = 0;  ///< Applied gradients of single workers, or groups.
  double step = 0;                ///< Mean seconds between two pushes of one worker.
  double late = 0;                ///< Share of gradients that were dropped.
  /// Number of updates between a worker's pull and its push: mean, 99th percentile, maximum.
  double staleness = 0;
  std::int64_t staleness_p99 = 0, max_staleness = 0;
  double server_busy = 0;  ///< Share of time in which a server's port receives.
};

/// Simulates `steps` steps of each worker by the rules of ServerCore, after steps / 10 that do not
/// count. Servers receive one gradient after the other, first come first served; parameters that
/// are sent at the same time share the port. Throws Exception(invalid_argument) for an invalid
/// policy.
ServerTraining simulate_servers(const ServerModel& model, int steps, std::uint64_t seed);

/// Seconds of ServerModel::inside: a ring's reduce-scatter of the gradients and its all-gather of
/// the parameters, of `bytes` each, over ports of `rate` bytes per second.
double inside_of_group(int members, double bytes, double rate, double latency);

}  // namespace gradwire::plan

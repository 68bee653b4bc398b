#pragma once

#include <map>
#include <string>
#include <tuple>

#include "gradwire/plan/network.h"
#include "gradwire/plan/simulate/operation_times.h"

namespace gradwire::plan {

/// Time of a collective, split into costs of bytes and of hops.
struct CollectiveTime {
  double bandwidth = 0;  ///< Seconds that the most loaded port sends or receives.
  double latency = 0;    ///< The other seconds: hops, processors, waiting for other ranks.
  double sent = 0;       ///< Bytes that the most loaded node sends or receives.
  std::string algorithm;

  double total() const { return bandwidth + latency; }
};

CollectiveTime operator+(const CollectiveTime& a, const CollectiveTime& b);

/// Times of collectives among nodes of one rank, from schedules on the link model: fabric_times(),
/// with the processor time of the network's messages; or measured_times() where `gradwire probe`
/// measured unequal ports and all of its hosts take part. An oversubscribed switch limits what
/// crosses between the halves of the nodes. With an engine's bus bandwidth instead:
/// bus_factor() bytes / bandwidth + small_operation_hops() latency. Remembers times, as plans ask
/// for the same ones repeatedly. Not thread-safe.
class CollectiveTimes {
 public:
  /// `algorithm`: one of planned_algorithms(), for the collectives that have it. Throws
  /// Exception(invalid_argument) for another name.
  CollectiveTime of(schedule::Collective collective, const std::string& algorithm, int nodes,
                    double bytes, const Network& network);

  /// Returns the time to reduce encoded gradients (docs/decisions.md): an all-to-all of
  /// `contribution` bytes per node, after which each node has the part that it reduces.
  CollectiveTime coded_reduction(int nodes, double contribution, const Network& network);
  /// Returns the time of the all-gather of `mean` bytes that follows.
  CollectiveTime coded_gather(int nodes, double mean, const Network& network);

 private:
  using Key = std::tuple<int, double, double, double, double, std::string, std::string>;

  OperationTimes& times(const std::string& algorithm, int nodes, const Network& network);

  std::map<Key, OperationTimes> times_;
};

/// Nodes that work and that serve.
struct ServerNodes {
  int workers = 1;
  int servers = 1;
  bool beside_workers = false;  ///< Servers are on the first workers' nodes.

  /// The bytes that the busiest port sends or receives while all workers push, or pull, as a share
  /// of one worker's.
  double busiest_share() const;
};

/// Returns the time of synchronous parameter servers. Each worker sends `pushed` bytes and receives
/// `pulled`; each server's port carries its part for all workers, in and out (Li et al., OSDI
/// 2014): with as many bytes both ways 2 (L + max(T', workers T' / servers)). Beside the workers a
/// server's own part does not travel: (workers - 1) / servers. A closed form, as no schedule has
/// servers; with one server it is a star.
CollectiveTime server_time(const ServerNodes& nodes, double pushed, double pulled,
                           const Network& network);

}  // namespace gradwire::plan

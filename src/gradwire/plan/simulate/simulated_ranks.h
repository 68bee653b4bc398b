#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/cost/link_model.h"
#include "gradwire/schedule/cost/message_graph.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::plan {

/// An operation with nothing else in flight.
struct OperationTime {
  double seconds = 0;
  double port_seconds = 0;  ///< Busy time of the most loaded port; others may use the rest.
  std::string algorithm;
  double port_bytes = 0;  ///< Sent or received by the most loaded port, whichever are more.
};

/// Ranks that the link model simulates: all of a fabric, or those of one host that represents all.
class SimulatedRanks {
 public:
  static SimulatedRanks of_all(const schedule::Schedule& schedule, const Fabric& fabric);

  /// Returns one host that represents all. Every rank must do the same as the corresponding rank of
  /// the next host, with its peers one host further on (rotation), or with its peers' hosts xor its
  /// own (as in an exchange of doubling distance). Then every host is at the same point at the same
  /// time, and its receives match its own sends. A message on the uplink of a rack takes as long as
  /// all messages that cross the uplink at the same time.
  ///
  /// Returns nullopt if ports are not equal, or the schedule is not of that kind. Compares the
  /// sends of only a few hosts, as there are too many; ranks may reduce in different orders.
  static std::optional<SimulatedRanks> of_one(const schedule::Schedule& schedule,
                                              const Fabric& fabric);

  /// Returns the time for `bytes` bytes of all chunks together.
  OperationTime time(double bytes, const schedule::CostOptions& options) const;

  /// Returns a lower bound of the seconds, per byte of all chunks, without a simulation.
  double min_seconds() const { return min_seconds_; }

  const Fabric& fabric() const { return fabric_; }
  std::uint32_t chunks() const { return chunks_; }
  std::size_t ops() const { return graph_.size(); }

 private:
  using Number = schedule::MessageGraph::Number;

  /// Location and size of an op.
  struct Place {
    std::uint32_t host = 0;  ///< Index among the simulated hosts.
    bool inside = false;     ///< A message inside its host.
    double share = 0;        ///< Share of all chunks' bytes that it moves.
    int crossing = 0;        ///< Sends: such messages on the uplink of a rack at the same time.
  };

  SimulatedRanks(const schedule::Schedule& schedule, const Fabric& fabric);
  Number add(const schedule::Program& program, Rank rank, Rank stands_for);
  void connect();
  schedule::LinkMap links(double bytes, const schedule::CostOptions& options) const;
  schedule::OpLoad load(Number op, double bytes, const schedule::CostOptions& options) const;

  Fabric fabric_;
  std::uint32_t chunks_;
  schedule::MessageGraph graph_;
  std::vector<Place> places_;
  std::uint32_t hosts_ = 0;
  double port_share_ = 0;   ///< Share of all chunks' bytes at the most loaded port.
  double min_seconds_ = 0;  ///< Seconds that a port is busy, per byte of all chunks.
};

}  // namespace gradwire::plan

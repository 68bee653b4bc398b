#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/cost/link_model.h"
#include "gradwire/schedule/cost/message_graph.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Ranks that the link model simulates: all of a fabric, or those of one host that represents all.
class SimulatedRanks {
 public:
  static SimulatedRanks of_all(const Schedule& schedule, const Fabric& fabric);

  /// Returns one host that represents all. Every rank must do the same as the corresponding rank of
  /// the next host, with its peers one host further on (rotation), or with its peers' hosts xor its
  /// own (as in an exchange of doubling distance). Then every host is at the same point at the same
  /// time, and receives what it has sent itself. `host`: the host whose program is used.
  ///
  /// Returns nullopt if the schedule is not of that kind. Compares the sends of only a few hosts,
  /// as there are too many; ranks may reduce in different orders.
  static std::optional<SimulatedRanks> of_one(const Schedule& schedule, const Fabric& fabric,
                                              int host);

  /// Returns the seconds for `bytes` bytes of all chunks together. One host requires a uniform
  /// fabric. options.segment_bytes 0: each message is cut as by the executor.
  double seconds(const Fabric& fabric, double bytes, const CostOptions& options) const;

 private:
  using Number = MessageGraph::Number;

  /// Location and size of an op.
  struct Place {
    std::uint32_t host = 0;  ///< Index among the simulated hosts.
    bool inside = false;     ///< A message inside its host.
    double share = 0;        ///< Share of all chunks' bytes that it moves.
  };

  Number add(const Program& program, const Fabric& fabric, std::uint32_t chunks, Rank rank,
             Rank stands_for);
  LinkMap links(const Fabric& fabric, double bytes, const CostOptions& options) const;
  OpLoad load(Number op, const Fabric& fabric, double bytes, const CostOptions& options) const;

  MessageGraph graph_;
  std::vector<Place> places_;
  std::uint32_t hosts_ = 0;
};

/// Share of all chunks' bytes that every host sends to the host at distance d (or to its own number
/// xor d), by d.
struct HostTraffic {
  std::vector<double> shares;
  bool rotation = true;

  bool neighbors_only() const;
};

/// Returns nullopt if hosts do not do the same, see of_one().
std::optional<HostTraffic> host_traffic(const Schedule& schedule, const Fabric& fabric);

}  // namespace gradwire

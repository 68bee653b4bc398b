#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/link_model.h"
#include "gradwire/schedule/message_graph.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// The ranks of a fabric that the link model plays through: all of them, or those of one host that
/// stands for all.
class SimulatedRanks {
 public:
  static SimulatedRanks of_all(const Schedule& schedule, const Fabric& fabric);

  /// One host that stands for all: where every rank does the same as the corresponding rank of
  /// the next host, with its peers one host further on (rotation), or with its peers' numbers xor
  /// its own host's (as in an exchange of doubling distance). Then every host is at the same point
  /// at the same time, and what arrives at one is what it has sent itself. `host` is the one whose
  /// program is taken. Nothing: the schedule is not of that kind. Whether it is, is looked up for
  /// a few hosts, as there are too many, and what they send is compared: ranks may add up in
  /// different orders.
  static std::optional<SimulatedRanks> of_one(const Schedule& schedule, const Fabric& fabric,
                                              int host);

  /// Seconds that it takes on `bytes` bytes of all chunks together. One host needs a uniform
  /// fabric. options.segment_bytes 0: each message is cut as the executor does.
  double seconds(const Fabric& fabric, double bytes, const CostOptions& options) const;

 private:
  using Number = MessageGraph::Number;

  /// Of an op.
  struct Place {
    std::uint32_t host = 0;  ///< Among those that are simulated.
    bool inside = false;     ///< A message that stays in its host.
    double share = 0;        ///< Of all chunks' bytes, what it moves.
  };

  Number add(const Program& program, const Fabric& fabric, std::uint32_t chunks, Rank rank,
             Rank stands_for);
  LinkMap links(const Fabric& fabric, double bytes, const CostOptions& options) const;
  OpLoad load(Number op, const Fabric& fabric, double bytes, const CostOptions& options) const;

  MessageGraph graph_;
  std::vector<Place> places_;
  std::uint32_t hosts_ = 0;
};

/// What every host sends to the host that is `d` further on (or whose number is its own xor d): of
/// all chunks' bytes, by d.
struct HostTraffic {
  std::vector<double> shares;
  bool rotation = true;

  bool only_neighbours() const;
};

/// Nothing if hosts do not do the same, as of_one() has it.
std::optional<HostTraffic> host_traffic(const Schedule& schedule, const Fabric& fabric);

}  // namespace gradwire

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// How a simulated time is computed.
enum class SimulationMethod : std::uint8_t {
  events,       ///< All ranks, segment by segment.
  one_for_all,  ///< One host, segment by segment; the others do the same at the same time.
  levels,       ///< All ranks of fewer hosts, plus a constant time per doubling of the hosts.
  ring_path,    ///< The longest dependency chain of segments in a ring.
  bound,        ///< One host or levels as above, plus the extra time of the most loaded link.
};

std::string_view name_of(SimulationMethod method);

struct SimulatedCollective {
  double seconds = 0;
  /// Busy time of the most loaded port; another collective can use the rest.
  double port_seconds = 0;
  SimulationMethod method = SimulationMethod::events;
};

/// Simulates collectives with one of the catalogue's algorithms. All ranks begin at the same time.
/// 16,384 ranks take less than a second.
///
/// Small schedules are simulated rank by rank. If all hosts do the same, one is simulated; that is
/// exact. Trees of many hosts are extrapolated from fewer hosts, by a constant time per doubling.
/// Rings over unequal links use a closed form. Anything else over unequal links takes its time over
/// equal links, plus the extra time of the most loaded link. docs/plan.md has the bounds.
class CollectiveSimulation {
 public:
  /// `method`: forces a method, for comparisons. Throws Exception(invalid_argument): a method that
  /// does not apply; an unknown algorithm; too many links for an algorithm that depends on them
  /// (uneven, spanning_trees), or hosts (hierarchical, leaders); too many messages.
  CollectiveSimulation(Collective collective, const std::string& algorithm, const Fabric& fabric,
                       const CostOptions& costs = {}, std::optional<SimulationMethod> method = {});
  ~CollectiveSimulation();
  CollectiveSimulation(CollectiveSimulation&&) noexcept;

  /// Returns the time for `bytes` bytes of all chunks together.
  SimulatedCollective of(double bytes) const;

  /// Returns true if more than `max_ops` messages and steps would be simulated; the run time is
  /// proportional to them.
  static bool is_expensive(Collective collective, const std::string& algorithm,
                           const Fabric& fabric, double max_ops);

 private:
  class Method;
  std::unique_ptr<Method> method_;
};

/// Simulates one size.
SimulatedCollective simulate_collective(Collective collective, const std::string& algorithm,
                                        const Fabric& fabric, double bytes,
                                        const CostOptions& costs = {},
                                        std::optional<SimulationMethod> method = {});

}  // namespace gradwire
